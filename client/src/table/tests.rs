use super::*;
use crate::command::{Limit, ProcessName};
use crate::hold::Plan;

fn request(number: u64) -> Arc<Request> {
    Arc::new(Request {
        limit: Limit::Mutex,
        waits: true,
        plan: Plan {
            lease: Duration::from_secs(30),
            ..Plan::default()
        },
        ..Request::answered(number, b"door", b"alice", &Arc::new(ProcessName::new()))
    })
}

fn queued() -> Result<Value, Error> {
    Ok(Value::Array(vec![Value::Int(0)]))
}

/// A first call of GRANTS may have created the inbox without a reply. If that has ended, what was queued there is gone.
#[test]
fn request_that_was_queued_before_its_inbox_opened_is_sent_again() {
    let (mut table, now, request) = (Table::new(), BootInstant::now(), request(7));
    let no_inbox = redis::make_extension_error("NOINBOX".into(), None);
    let (_, sending) = table.begin(&request, now).expect("the first one");
    table.on_reply(&request, sending, Err(no_inbox.into()), now);
    let (_, epoch) = table.take_wanted().expect("a request waits");
    // The reply of GRANTS is lost, but the inbox is there.
    table.on_inbox_unreachable(epoch);
    assert_eq!(table.take_parked().len(), 1);
    let (_, sending) = table.begin_again(&request, now).expect("it was parked");
    table.on_reply(&request, sending, queued(), now);
    assert!(table.is_queued(7).0 && !table.has_parked());
    table.on_inbox_open(epoch, now);
    let again = table.take_parked();
    assert_eq!(
        again.iter().map(|request| request.number).collect::<Vec<_>>(),
        [7]
    );
}
