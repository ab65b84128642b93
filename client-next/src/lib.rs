//! A client of DLOCK: distributed locks on Redis and Valkey.

#[cfg(feature = "testing")]
pub mod testing;
