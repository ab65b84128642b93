use crate::client::Client;
use crate::server::Server;
use redis::Msg;

const MARK_CHANNEL: &str = "end-of-events";

/// The keyspace events of all databases, in order. The server must have `notify-keyspace-events Ed` or more.
pub struct Events {
    subscriber: Client,
    marker: Client,
}

impl Events {
    pub fn watch(server: &Server) -> Self {
        let mut subscriber = server.client();
        subscriber.ask::<redis::Value>("PSUBSCRIBE __key*__:*");
        subscriber.ask::<redis::Value>(&format!("SUBSCRIBE {MARK_CHANNEL}"));
        Self {
            subscriber,
            marker: server.client(),
        }
    }

    /// The events since the last call, as `event key`.
    pub fn take(&mut self) -> Vec<String> {
        let events = self.messages().into_iter();
        events
            .filter_map(|(channel, payload)| {
                let event = channel.strip_prefix("__keyevent@")?.split_once(':')?.1.to_owned();
                Some(format!("{event} {payload}"))
            })
            .collect()
    }

    /// The messages since the last call, as they came: channel and payload.
    pub fn messages(&mut self) -> Vec<(String, String)> {
        // The server publishes in order: what precedes the mark happened before the call.
        self.marker.ask::<i64>(&format!("PUBLISH {MARK_CHANNEL} mark"));
        let mut messages = Vec::new();
        loop {
            let value = self.subscriber.connection();
            let value = value.recv_response().expect("the mark arrives");
            let Some(message) = Msg::from_owned_value(value) else {
                continue;
            };
            let channel = message.get_channel_name().to_owned();
            if channel == MARK_CHANNEL {
                return messages;
            }
            messages.push((channel, message.get_payload().expect("a text")));
        }
    }
}
