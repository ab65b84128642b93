import { specify } from "./spec.mjs";

specify("node-redis");
