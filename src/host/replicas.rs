//! How far replicas have the stream of replication, as the server says.

use dlock_core::Offset;

use crate::redis::Ctx;

/// The offset of the stream, and those that the replicas that are online have acknowledged.
pub fn offsets(ctx: &mut Ctx<'_>) -> Option<(Offset, Vec<Offset>)> {
    let info = ctx.call_for_text(c"INFO", &["replication"])?;
    let mut lines = info.lines();
    let sent = lines.find_map(|line| line.strip_prefix("master_repl_offset:"))?;
    // slave0:ip=127.0.0.1,port=6380,state=online,offset=1234,lag=0
    let online = info
        .lines()
        .filter(|line| line.starts_with("slave") && line.contains(",state=online,"));
    let offset = |line: &str| {
        let offset = line.split(',').find_map(|field| field.strip_prefix("offset="));
        offset?.parse().ok()
    };
    Some((sent.parse().ok()?, online.filter_map(offset).collect()))
}
