//! A certificate for servers and clients on this machine, and servers that use it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::port::free_port;
use crate::server::Server;
use crate::wait::wait_for;

/// Writes a self-signed certificate and its key. It is its own CA.
pub fn write_certificate(directory: &Path) {
    let names = ["localhost", "127.0.0.1"].map(String::from);
    let own = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
    fs::write(certificate(directory), own.cert.pem()).expect("the directory is writable");
    fs::write(key(directory), own.signing_key.serialize_pem()).expect("the directory is writable");
}

pub fn certificate(directory: &Path) -> PathBuf {
    directory.join("cert.pem")
}

pub fn key(directory: &Path) -> PathBuf {
    directory.join("key.pem")
}

/// The lines of a configuration for a port with TLS. Clients need the certificate too if `auth_clients` is `yes`.
pub fn config(directory: &Path, port: u16, auth_clients: &str) -> String {
    let (certificate, key) = (certificate(directory), key(directory));
    let (certificate, key) = (certificate.display(), key.display());
    format!(
        "tls-port {port}\ntls-cert-file {certificate}\ntls-key-file {key}\ntls-ca-cert-file {certificate}\n\
         tls-auth-clients {auth_clients}\ntls-replication yes"
    )
}

/// A cluster of one node with this configuration, which announces its port with TLS if `tls_cluster` is `yes`.
pub fn cluster(config: &str, tls_cluster: &str) -> Server {
    // By default, the bus has a port that a connection of the system may have.
    let bus = free_port();
    let server = Server::with(&format!(
        "cluster-enabled yes\ncluster-port {bus}\ntls-cluster {tls_cluster}\n{config}"
    ));
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_for("a cluster that is served", || {
        client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
    });
    server
}
