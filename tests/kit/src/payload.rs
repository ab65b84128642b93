//! DUMP payloads: taken apart, forged, and sealed with a valid checksum.
//!
//! ```text
//! dump   = type value footer            type   = 7 for a value of a module
//! value  = module-id opcode* 0          opcode = 5 string, for ours
//! footer = version (2 bytes) CRC64 (8 bytes), both with the low byte first
//! ```

use redis::Value;

use crate::client::Client;

const OPCODE_STRING: u8 = 5;
const OPCODE_END: u8 = 0;
const MODULE_ID_BYTES: usize = 9;
const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;

/// Where the part that the module reads begins.
const VALUE_START: usize = 1 + MODULE_ID_BYTES;

/// Without the checksum, with the version.
pub fn body(dump: &[u8]) -> &[u8] {
    &dump[..dump.len() - CHECKSUM_BYTES]
}

/// Appends the valid checksum to a body.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut dump = body.to_vec();
    dump.extend(crc64(body).to_le_bytes());
    dump
}

/// `dump` truncated to its first `length` bytes, with a valid footer.
pub fn cut(dump: &[u8], length: usize) -> Vec<u8> {
    let version = &body(dump)[body(dump).len() - VERSION_BYTES..];
    sealed(&[&dump[..length], version].concat())
}

/// The bytes between the header and the footer.
pub fn value_end(dump: &[u8]) -> usize {
    dump.len() - CHECKSUM_BYTES - VERSION_BYTES
}

/// `dump` with another string in it.
fn with_text(dump: &[u8], text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a short text").to_be_bytes();
    let header = &dump[..VALUE_START];
    let version = &body(dump)[value_end(dump)..];
    sealed(
        &[
            header,
            &[OPCODE_STRING, 0x80],
            &length,
            text,
            &[OPCODE_END],
            version,
        ]
        .concat(),
    )
}

/// The CRC64 of the server: Jones polynomial, reflected, starting at 0.
fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED_POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            (crc >> 1) ^ (REFLECTED_POLYNOMIAL & (crc & 1).wrapping_neg())
        })
    })
}

/// A holder as the module encodes it, with one hold.
pub struct Holder<'a> {
    pub owner: &'a str,
    pub fence: u64,
    pub lease_ms: u64,
}

/// `dump` with a shared lock in it that has these holders.
pub fn with_holders<'a>(dump: &[u8], holders: impl IntoIterator<Item = Holder<'a>>) -> Vec<u8> {
    const VERSION: u8 = 1;
    const HOLDER: u8 = 3;
    let mut text = vec![VERSION];
    for holder in holders {
        text.push(HOLDER);
        number(&mut text, holder.owner.len() as u64);
        text.extend(holder.owner.bytes());
        // Limit 0 = none, lease, age, one hold without a request id, no request ids.
        for part in [0, holder.fence, holder.lease_ms, 0, 1, 0] {
            number(&mut text, part);
        }
    }
    with_text(dump, &text)
}

/// An unsigned LEB128.
fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Client {
    /// A shared lock with this many holders, `holder0` first.
    #[track_caller]
    pub fn restore_lock_with_holders(&mut self, key: &str, holders: u64) {
        self.acquire(&format!("{key} holder0 60000 SHARED"));
        let dump: Vec<u8> = self.ask(&format!("DUMP {key}"));
        let owners: Vec<String> = (0..holders).map(|n| format!("holder{n}")).collect();
        let holders = owners.iter().zip(1..).map(|(owner, fence)| Holder {
            owner,
            fence,
            lease_ms: 600_000,
        });
        let payload = with_holders(&dump, holders);
        self.ask_args::<Value>(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]);
    }
}
