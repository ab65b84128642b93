use clap::Parser;

use redis_dlock_client::Address;

use super::super::server_url::host_and_tls;
use super::*;
use crate::args::Cli;

fn target(line: &str, url: Option<&str>, password: Option<&str>) -> Result<Target, Failure> {
    let words = ["dlock"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words.chain(["ls"])).expect("a command line that parses");
    Target::from_args(&cli.server, |name| match name {
        "DLOCK_URL" => url.map(str::to_owned),
        "REDISCLI_AUTH" => password.map(str::to_owned),
        _ => None,
    })
}

fn node(line: &str, url: Option<&str>) -> (String, i64) {
    let target = target(line, url, None).unwrap();
    match target.url {
        ServerUrl::Node(address) => (address.to_string(), target.login.db()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn server_options_follow_redis_cli() {
    let cases = [
        ("", None, "127.0.0.1:6379", 0),
        ("-p 7000", None, "127.0.0.1:7000", 0),
        ("-h one -p 7000 -n 3", None, "one:7000", 3),
        ("-u redis://one:7000/2", None, "one:7000", 2),
        ("-u redis://one:7000/2 -n 3", None, "one:7000", 3),
        ("-s /run/redis.sock", None, "/run/redis.sock", 0),
        ("-u unix:///run/redis.sock?db=4", None, "/run/redis.sock", 4),
        ("", Some("redis://two"), "two:6379", 0),
        ("-h one", Some("redis://two"), "one:6379", 0),
        ("-u redis://one", Some("redis://two"), "one:6379", 0),
    ];
    for (line, url, address, database) in cases {
        assert_eq!(node(line, url), (address.to_owned(), database), "{line} {url:?}");
    }
    assert!(matches!(
        target("--tls", None, None).unwrap().url,
        ServerUrl::Node(ConnectionAddr::TcpTls { .. })
    ));
}

#[test]
fn password_option_overrides_url_and_environment() {
    let cases = [
        ("", None, Some("env"), Some("env")),
        ("-a line", None, Some("env"), Some("line")),
        ("-u redis://:url@one", None, Some("env"), Some("url")),
        ("-a line -u redis://:url@one", None, None, Some("line")),
        ("", Some("redis-cluster://:s%40@one,two"), None, Some("s@")),
        ("", None, None, None),
    ];
    for (line, url, variable, password) in cases {
        let target = target(line, url, variable).unwrap();
        assert_eq!(target.login.password(), password, "{line} {url:?}");
    }
    assert!(target("--user alice", None, None).is_err());
}

#[test]
fn cluster_and_sentinel_urls_have_several_hosts() {
    let cluster = target("-u rediss-cluster://one:1,two", None, None).unwrap();
    let hosts = vec!["one:1".to_owned(), "two".to_owned()];
    assert_eq!(
        cluster.url,
        ServerUrl::Cluster {
            tls: true,
            hosts: hosts.clone()
        }
    );
    let sentinels = target("-u redis-sentinel://a:b@one:1,two/main/2", None, None).unwrap();
    let primary = "main".to_owned();
    assert_eq!(
        sentinels.url,
        ServerUrl::Sentinels {
            tls: false,
            hosts,
            primary
        }
    );
    assert_eq!(sentinels.login.db(), 2);
    assert_eq!(sentinels.login.username(), Some("a"));
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
        let refused = target("", Some(url), None).err().map(|failure| failure.code);
        assert_eq!(refused, Some(Code::Usage), "{url}");
    }
}

#[test]
fn password_is_percent_encoded_in_client_url() {
    let target = target("-a p@s:s/% -u redis-cluster://one", None, None).unwrap();
    let url = target
        .client_url("cluster", false, &["one".to_owned()], "")
        .unwrap();
    assert_eq!(url, "redis-cluster://:p%40s%3As%2F%25@one");
}

#[test]
fn ipv6_host_is_bracketed_in_client_url() {
    for (host, url) in [
        ("::1", "redis-cluster://[::1]:6379"),
        ("one", "redis-cluster://one:6379"),
    ] {
        let target = target(&format!("-h {host}"), None, None).unwrap();
        let ServerUrl::Node(address) = &target.url else {
            panic!("{:?}", target.url);
        };
        let (host, tls) = host_and_tls(address).unwrap();
        let written = target.client_url("cluster", tls, &[host], "").unwrap();
        assert_eq!(written, url);
        assert!(written.parse::<Address>().is_ok(), "{written}");
    }
}
