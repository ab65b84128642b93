use clap::Parser;

use super::*;
use crate::args::Cli;
use crate::exit::Code;

fn target(line: &str, variables: &[(&str, &str)]) -> Result<Target, Failure> {
    let words = ["dlock"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words.chain(["ls"])).expect("a command line that parses");
    Target::from_args(&cli.server, |name| {
        let variable = variables.iter().find(|(variable, _)| *variable == name);
        variable.map(|(_, value)| (*value).to_owned())
    })
}

/// The servers of a target that grant locks.
fn servers(target: Target) -> Vec<ConnectionInfo> {
    match target.endpoints {
        Endpoints::Node(info) => vec![info],
        Endpoints::Cluster(nodes) => nodes,
        Endpoints::Sentinel { primary, .. } => vec![primary],
    }
}

#[test]
fn server_options_follow_redis_cli() {
    let cases = [
        ("", "", "127.0.0.1:6379", 0),
        ("-p 7000", "", "127.0.0.1:7000", 0),
        ("-h one -p 7000 -n 3", "", "one:7000", 3),
        ("-u redis://one:7000/2", "", "one:7000", 2),
        ("-u redis://one:7000/2 -n 3", "", "one:7000", 3),
        ("-s /run/redis.sock", "", "/run/redis.sock", 0),
        ("-u unix:///run/redis.sock?db=4", "", "/run/redis.sock", 4),
        ("", "redis://two", "two:6379", 0),
        ("-h one", "redis://two", "one:6379", 0),
        ("-u redis://one", "redis://two", "one:6379", 0),
    ];
    for (line, url, address, database) in cases {
        let servers = servers(target(line, &[("DLOCK_URL", url)]).unwrap());
        let server = (servers[0].addr().to_string(), servers[0].redis_settings().db());
        assert_eq!(server, (address.to_owned(), database), "{line} {url:?}");
    }
    let servers = servers(target("--tls", &[]).unwrap());
    assert!(matches!(servers[0].addr(), ConnectionAddr::TcpTls { .. }));
}

#[test]
fn password_option_overrides_url_and_environment() {
    let cases = [
        ("", "", "env", Some("env")),
        ("-a line", "", "env", Some("line")),
        ("-u redis://:url@one", "", "env", Some("url")),
        ("-a line -u redis://:url@one", "", "", Some("line")),
        ("", "redis-cluster://:s%40@one,two", "", Some("s@")),
        ("", "", "", None),
    ];
    for (line, url, variable, password) in cases {
        let target = target(line, &[("DLOCK_URL", url), ("REDISCLI_AUTH", variable)]).unwrap();
        for server in servers(target) {
            assert_eq!(server.redis_settings().password(), password, "{line} {url:?}");
        }
    }
    assert!(target("--user alice", &[]).is_err());
}

#[test]
fn sentinels_have_a_password_of_their_own() {
    let cases = [
        ("", "", None),
        ("--sentinel-pass option", "env", Some("option")),
        ("--sentinel-user alice", "env", Some("env")),
    ];
    for (options, variable, password) in cases {
        let line = format!("-u rediss-sentinel://:primary@one,two:1/main {options}");
        let target = target(&line, &[("DLOCK_SENTINEL_AUTH", variable)]).unwrap();
        assert_eq!(target.sentinels().len(), 2);
        for sentinel in target.sentinels() {
            assert_eq!(sentinel.redis_settings().password(), password, "{options}");
            assert!(matches!(sentinel.addr(), ConnectionAddr::TcpTls { .. }));
        }
        assert_eq!(servers(target)[0].redis_settings().password(), Some("primary"));
    }
}

#[test]
fn malformed_url_is_rejected() {
    for url in [
        "nonsense",
        "http://one",
        "redis-sentinel://one",
        "redis-cluster://",
        "x-cluster://one",
        "redis://one/x",
    ] {
        let rejected = target("", &[("DLOCK_URL", url)]).err().expect(url);
        assert_eq!(rejected.code, Code::Usage, "{url}");
        assert!(
            rejected.message.contains("redis-sentinel://host:port"),
            "{rejected:?}"
        );
    }
}
