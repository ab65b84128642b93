//! Finds out which DLOCK commands the user has permission for, without running them.

use redis::{RedisResult, Value, cmd};
use redis_dlock_client::Owner;

use crate::server::{Node, is_command_denied};

const COMMANDS: [(&str, &[&str]); 6] = [
    ("DLOCK.ACQUIRE", &["doctor", "1"]),
    ("DLOCK.RELEASE", &["doctor"]),
    ("DLOCK.EXTEND", &["doctor", "1"]),
    ("DLOCK.GRANTS", &["0"]),
    ("DLOCK.OWNER", &[]),
    ("DLOCK.INFO", &[]),
];

/// The DLOCK commands that the user has no permission for; `None` without permission for MULTI and DISCARD.
///
/// The server checks permissions when it queues a command of a transaction. The transaction is then discarded, so
/// no command runs and no counter changes.
pub fn denied_commands(node: &mut Node) -> Option<Vec<&'static str>> {
    let multi: RedisResult<Value> = cmd("MULTI").query(&mut node.connection);
    multi.ok()?;
    let name = [b"dlock-doctor:", Owner::unique().as_bytes()].concat();
    let denied = COMMANDS.iter().filter(|(command, args)| {
        let mut request = cmd(command);
        request.arg(&name).arg(*args);
        let reply: RedisResult<Value> = request.query(&mut node.connection);
        reply.is_err_and(|error| is_command_denied(&error))
    });
    let denied = denied.map(|(command, _)| *command).collect();
    let discard: RedisResult<Value> = cmd("DISCARD").query(&mut node.connection);
    discard.ok().map(|_| denied)
}
