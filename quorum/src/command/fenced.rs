use redis::{Arg, Cmd, ToSingleRedisArg};

use super::request::command;

/// Lua that stops a script or a function before it writes, unless the owner `ARGV[1]` holds the lock `KEYS[1]` under the
/// fencing token `ARGV[2]`. Put it first.
#[cfg_attr(
    feature = "locks",
    doc = "See [`Guard::script_args`](crate::Guard::script_args)."
)]
pub const LUA_FENCE_CHECK: &str = "redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])\n";

/// `DLOCK.GUARD key owner fence command [arg ...]`: the server runs the command only if the owner holds the lock under
/// this fencing token.
#[cfg_attr(feature = "locks", doc = "See [`Guard::fenced`](crate::Guard::fenced).")]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub fn fenced(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, fence: u64, inner: &Cmd) -> Cmd {
    let mut outer = command("DLOCK.GUARD", key);
    outer.arg(owner).arg(fence);
    for argument in inner.args_iter() {
        match argument {
            Arg::Simple(bytes) => outer.arg(bytes),
            // Of a scan that has not begun.
            _ => outer.arg(0),
        };
    }
    outer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_command_has_lock_first_then_all_arguments() {
        let inner = redis::cmd("HSCAN")
            .arg("h")
            .cursor_arg(0)
            .arg("COUNT")
            .arg(5)
            .clone();
        let outer = fenced("door", "alice", 7, &inner);
        let expected = [
            "DLOCK.GUARD",
            "door",
            "alice",
            "7",
            "HSCAN",
            "h",
            "0",
            "COUNT",
            "5",
        ];
        let expected: Vec<Vec<u8>> = expected
            .iter()
            .map(|argument| argument.as_bytes().into())
            .collect();
        assert_eq!(outer.get_packed_command(), redis::pack_command(&expected));
    }
}
