//! Behind TLS: a cluster and Sentinels, with certificates of the application, one of which servers demand.
//! `addresses` has a single server.

use std::fs;
use std::path::Path;

use crate::addresses::check;
use dlock_testkit::{Client, Sentinel, Server, free_port, tls};
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ClientTlsConfig, ConnectionAddr, TlsCertificates, TlsMode};
use redis_dlock_client::{Error, Locks};
use tempfile::TempDir;

fn certificates(folder: &Path) -> TlsCertificates {
    let read = |path| fs::read(path).unwrap();
    TlsCertificates {
        root_cert: Some(read(tls::certificate(folder))),
        client_tls: Some(ClientTlsConfig {
            client_cert: read(tls::certificate(folder)),
            client_key: read(tls::key(folder)),
        }),
    }
}

/// With the certificate that the servers demand, and without.
async fn check_certificates(folder: &Path, open: impl Fn(TlsCertificates) -> Locks, client: &mut Client) {
    let mut certificates = certificates(folder);
    check(&open(certificates.clone()), client, "door").await;
    certificates.client_tls = None;
    let refused = open(certificates).lock("door").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Redis { .. }), "{refused:?}");
}

#[tokio::test]
async fn cluster_is_shown_certificate_of_application() {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    tls::write_certificate(folder.path());
    let server = tls::cluster(&tls::config(folder.path(), port, "yes"), "yes");
    let open = |certificates| {
        let nodes = [format!("rediss://127.0.0.1:{port}")];
        let client = ClusterClient::builder(nodes).certs(certificates).build();
        Locks::open(client.unwrap()).unwrap()
    };
    check_certificates(folder.path(), open, &mut server.client()).await;
}

#[tokio::test]
async fn sentinel_and_primary_are_shown_certificate_of_application() {
    let (folder, primary_port, port) = (TempDir::new().unwrap(), free_port(), free_port());
    tls::write_certificate(folder.path());
    let primary = Server::with(&tls::config(folder.path(), primary_port, "yes"));
    let _sentinel = Sentinel::start(primary_port, 0, &tls::config(folder.path(), port, "yes"));
    let open = |certificates: TlsCertificates| {
        let sentinel = ConnectionAddr::TcpTls {
            host: "127.0.0.1".into(),
            port,
            insecure: false,
            tls_params: None,
        };
        let builder = SentinelClientBuilder::new([sentinel], "main", SentinelServerType::Master);
        let builder = builder
            .unwrap()
            .set_client_to_sentinel_certificates(certificates.clone())
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates);
        Locks::open(builder.build().unwrap()).unwrap()
    };
    check_certificates(folder.path(), open, &mut primary.client()).await;
}
