//! What is asked of a run by the environment.

use std::env;

/// If this variable is set, all scenarios run on a primary that tells of grants when its replica has them.
const SYNCHRONOUS: &str = "DLOCK_SYNCHRONOUS";

/// Whether it is. Then ACQUIREs are not counted: the first one finds no inbox, and an inbox brings what a lost reply did
/// not.
pub fn is_synchronous() -> bool {
    env::var_os(SYNCHRONOUS).is_some()
}
