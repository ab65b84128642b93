//! Settings of TCP connections.

use std::time::Duration;

use redis::ConnectionInfo;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;

/// A peer that vanished without closing its connection is detected after about this long.
const DEAD_PEER: Duration = Duration::from_secs(10);

/// Sends small packets at once and detects dead peers.
pub(super) fn with_keepalive(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(keepalive_settings())
}

pub(super) fn keepalive_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(DEAD_PEER / 2)
        .with_interval(DEAD_PEER / 4)
        .with_retries(2);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let settings = settings.set_user_timeout(DEAD_PEER);
    settings
}

/// Discards unacknowledged data when the connection closes: see [`Purpose::Requests`](super::Purpose::Requests).
pub(super) fn with_zero_linger(settings: TcpSettings) -> TcpSettings {
    settings.set_linger_time(Duration::ZERO)
}
