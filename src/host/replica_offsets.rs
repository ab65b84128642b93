//! How far replicas have the stream of replication, as the server says.

use std::ffi::CString;

use dlock_core::Offset;

use crate::redis::Ctx;

/// The offset of the stream, and those that the replicas that are online have acknowledged.
pub fn read(ctx: &mut Ctx<'_>) -> Option<(Offset, Vec<Offset>)> {
    let info = ctx.server_info(c"replication");
    let sent = info.text(c"master_repl_offset")?.parse().ok()?;
    let names = (0_u32..).map_while(|number| CString::new(format!("slave{number}")).ok());
    // ip=127.0.0.1,port=6380,state=online,offset=1234,lag=0
    let replicas = names.map_while(|name| info.text(&name));
    let online = replicas.filter(|replica| replica.split(',').any(|field| field == "state=online"));
    let acknowledged = online.filter_map(|replica| {
        let offset = replica.split(',').find_map(|field| field.strip_prefix("offset="));
        offset?.parse().ok()
    });
    Some((sent, acknowledged.collect()))
}
