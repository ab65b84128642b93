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

/// A request that the server has queued.
fn waiting(table: &mut Table, number: u64, now: BootInstant) -> Arc<Request> {
    let request = request(number);
    let (_, sending) = table.begin(&request, now).expect("it is the first one");
    table.on_reply(&request, sending, queued(), now);
    request
}

#[test]
fn longest_wait_is_noticed_after_a_second_and_the_next_one_ten_seconds_later() {
    let (mut table, start) = (Table::new(), BootInstant::now());
    let after = |ms| start + Duration::from_millis(ms);
    let noticed = |table: &mut Table, ms| {
        let (request, waited) = table.take_noticed(after(ms))?;
        Some((request.number, waited.as_millis()))
    };
    assert_eq!(noticed(&mut table, 0), None);
    waiting(&mut table, 2, after(0));
    waiting(&mut table, 1, after(500));
    assert_eq!(noticed(&mut table, 999), None);
    assert_eq!(noticed(&mut table, 1_000), Some((2, 1_000)));
    assert_eq!(noticed(&mut table, 10_999), None);
    assert_eq!(noticed(&mut table, 11_000), Some((1, 10_500)));
    assert_eq!(noticed(&mut table, 30_000), None);
}
