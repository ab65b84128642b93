import { specifyContract } from "./contract.mjs";

specifyContract("node-redis");
