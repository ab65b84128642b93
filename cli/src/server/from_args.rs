//! Reads options and environment variables.

use std::env;
use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};

use super::endpoints::Endpoints;
use super::target::Target;
use crate::args::ServerArgs;
use crate::exit::Failure;

const URL_FORMS: &str = "use redis://host:port, rediss://host:port, unix:///path, \
                         redis-sentinel://host:port,host:port/name or redis-cluster://host:port,host:port, with / @ and \
                         % in passwords written as %2F, %40 and %25";

impl Target {
    /// Reads the options, and the environment variables for options that are not given.
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        Self::from_args(args, |name| env::var(name).ok())
    }

    /// The servers of a quorum. The other options apply to all of them.
    pub fn quorum(args: &ServerArgs, urls: &[String]) -> Result<Vec<Self>, Failure> {
        if args.url.is_some() || args.host.is_some() || args.port.is_some() || args.socket.is_some() {
            return Err(Failure::usage(
                "-u, -h, -p and -s name one server: give all servers of the quorum as URLs",
            ));
        }
        let target = |url: &String| {
            let url = Some(url.clone());
            Self::new(&ServerArgs { url, ..args.clone() })
        };
        urls.iter().map(target).collect()
    }

    fn from_args(args: &ServerArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let has_address = args.host.is_some() || args.port.is_some() || args.socket.is_some();
        let url = args
            .url
            .clone()
            .or_else(|| variable("DLOCK_URL").filter(|_| !has_address));
        let mut endpoints: Endpoints = match url {
            Some(url) => url
                .parse()
                .map_err(|error| Failure::usage(format!("invalid server URL: {error}: {URL_FORMS}")))?,
            None => Endpoints::Node(address(args).into_connection_info()?),
        };
        let certificates = read_certificates(args)?;
        let transport = |info: ConnectionInfo| with_transport(info, args.tls, certificates.as_ref());
        let login = |info| {
            with_credentials(
                info,
                args.user.as_deref(),
                args.password.as_ref(),
                variable("REDISCLI_AUTH"),
            )
        };
        let server = |info| {
            let info = login(transport(info)?);
            let settings = info.redis_settings().clone();
            if settings.username().is_some() && settings.password().is_none() {
                return Err(Failure::usage(
                    "--user needs a password: set REDISCLI_AUTH, or pass it with -a or in the URL",
                ));
            }
            Ok(match args.database {
                Some(database) => info.set_redis_settings(settings.set_db(database.into())),
                None => info,
            })
        };
        let sentinel = |info| {
            let user = args.sentinel_user.as_deref();
            let default_password = variable("DLOCK_SENTINEL_AUTH");
            let password = args.sentinel_password.as_ref();
            Ok::<_, Failure>(with_credentials(
                transport(info)?,
                user,
                password,
                default_password,
            ))
        };
        match &mut endpoints {
            Endpoints::Node(info) => *info = server(info.clone())?,
            Endpoints::Cluster(nodes) => {
                for info in nodes {
                    *info = server(info.clone())?;
                }
            }
            Endpoints::Sentinel {
                sentinels, primary, ..
            } => {
                *primary = server(primary.clone())?;
                for info in sentinels {
                    *info = sentinel(info.clone())?;
                }
            }
        }
        Ok(Self {
            endpoints,
            certificates,
        })
    }
}

fn address(args: &ServerArgs) -> ConnectionAddr {
    match &args.socket {
        Some(path) => ConnectionAddr::Unix(path.clone()),
        None => {
            let host = args.host.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
            ConnectionAddr::Tcp(host, args.port.unwrap_or(6379))
        }
    }
}

fn with_transport(
    info: ConnectionInfo,
    tls: bool,
    certificates: Option<&TlsCertificates>,
) -> Result<ConnectionInfo, Failure> {
    let info = match info.addr() {
        ConnectionAddr::Tcp(host, port) if tls => {
            let (host, port) = (host.clone(), *port);
            info.set_addr(ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            })
        }
        _ => info,
    };
    let Some(certificates) = certificates else {
        return Ok(info);
    };
    let client = Client::build_with_tls(info, certificates.clone())
        .map_err(|error| Failure::usage(format!("cannot use the certificates: {error}")))?;
    Ok(client.get_connection_info().clone())
}

fn with_credentials(
    info: ConnectionInfo,
    user: Option<&str>,
    password: Option<&String>,
    default_password: Option<String>,
) -> ConnectionInfo {
    let mut settings: RedisConnectionInfo = info.redis_settings().clone();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    let default_password = default_password.filter(|_| settings.password().is_none());
    if let Some(password) = password.cloned().or(default_password) {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

fn read_certificates(args: &ServerArgs) -> Result<Option<TlsCertificates>, Failure> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    };
    let root_cert = args.cacert.as_deref().map(read).transpose()?;
    let client_tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        }),
        _ => None,
    };
    let any = root_cert.is_some() || client_tls.is_some();
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

#[cfg(test)]
mod tests;
