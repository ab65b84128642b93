import { specifyContract } from "./contract.mjs";

specifyContract("ioredis");
