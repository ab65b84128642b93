/** The cluster's hash slot of a key: CRC16 (XMODEM) of the key or its hash tag. */
export function slotOf(rawKey: string | Buffer): number {
  const key = Buffer.from(rawKey);
  const open = key.indexOf("{");
  const close = open < 0 ? -1 : key.indexOf("}", open + 1);
  let crc = 0;
  for (const byte of close > open + 1 ? key.subarray(open + 1, close) : key) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc & 0x3fff;
}

/** `host:port` as the clients want it. */
export function parse(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}
