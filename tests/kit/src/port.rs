use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports of tests, below those that the system gives to connections (32768 and up).
const FIRST_PORT: u16 = 22_000;
const BLOCKS: u16 = 10;
const BLOCK_PORTS: u16 = 1_000;
/// By default, a cluster node has its bus this far above its port.
const BUS_OFFSET: u16 = 10_000;

/// The ports of this process. Its listener reserves them: as long as it lives, the name cannot be bound again.
struct Block {
    first: u16,
    taken: AtomicU16,
    _reservation: Option<UnixListener>,
}

static BLOCK: LazyLock<Block> = LazyLock::new(|| {
    // Without a free block, it shares one.
    let own = (std::process::id() % u32::from(BLOCKS)) as u16;
    let mut blocks = (0..BLOCKS).map(|n| (own + n) % BLOCKS);
    let reserved = blocks.find_map(|n| Some((n, reserve(n)?)));
    let (number, reservation) = reserved.map_or((own, None), |(n, listener)| (n, Some(listener)));
    Block {
        first: FIRST_PORT + number * BLOCK_PORTS,
        taken: AtomicU16::new(0),
        _reservation: reservation,
    }
});

fn reserve(block: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("dlock-test-ports-{block}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// A port that is free, and that no other test gets soon.
pub fn free_port() -> u16 {
    free_ports(1, is_free)
}

/// The first of consecutive ports that are free, and whose default ports for the cluster bus are free too.
pub fn free_ports_with_bus(count: u16) -> u16 {
    let bus = free_ports(count, |bus| is_free(bus) && is_free(bus - BUS_OFFSET));
    bus - BUS_OFFSET
}

fn free_ports(count: u16, is_usable: impl Fn(u16) -> bool) -> u16 {
    let candidates = (0..BLOCK_PORTS).filter_map(|_| {
        let start = BLOCK.taken.fetch_add(count, Ordering::Relaxed) % BLOCK_PORTS;
        (start + count <= BLOCK_PORTS).then_some(BLOCK.first + start)
    });
    let mut usable = candidates.filter(|first| (*first..first + count).all(&is_usable));
    usable.next().expect("the system has free ports")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
