import { specify } from "./spec.mjs";

specify("ioredis");
