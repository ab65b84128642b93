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

fn no_inbox() -> Result<Value, Error> {
    Err(redis::make_extension_error("NOINBOX".into(), None).into())
}

fn numbers(requests: &[Arc<Request>]) -> Vec<u64> {
    requests.iter().map(|request| request.number).collect()
}

/// A first call of GRANTS may have created the inbox without a reply. If that has ended, what was queued there is gone.
#[test]
fn request_that_was_queued_before_its_inbox_opened_is_sent_again() {
    let (mut table, now, request) = (Table::new(), BootInstant::now(), request(7));
    let (_, sending) = table.begin(&request, now).expect("the first one");
    table.on_reply(&request, sending, no_inbox(), now);
    let (_, epoch) = table.take_wanted().expect("a request waits");
    // The reply of GRANTS is lost, but the inbox is there.
    table.on_inbox_unreachable(epoch);
    assert_eq!(table.take_parked().len(), 1);
    let (_, sending) = table.begin_again(&request, now).expect("it was parked");
    table.on_reply(&request, sending, queued(), now);
    assert!(table.is_queued(7).0 && !table.has_parked());
    table.on_inbox_open(epoch, now);
    assert_eq!(numbers(&table.take_parked()), [7]);
}

/// Of those that the background has sent together, the caller of the newer one sends it again when its reply is lost. By
/// then there may be a new inbox, in which the older one has no place yet.
#[test]
fn request_whose_reply_was_lost_is_not_queued_before_older_ones_whose_inbox_has_ended() {
    let (mut table, now) = (Table::new(), BootInstant::now());
    let [older, newer] = [request(1), request(2)];
    let (_, sending) = table.begin(&older, now).expect("the first one");
    assert!(table.begin(&newer, now).is_none(), "it waits for the older one");
    table.on_reply(&older, sending, no_inbox(), now);
    let (_, epoch) = table.take_wanted().expect("requests wait");
    table.on_inbox_open(epoch, now);
    assert_eq!(numbers(&table.take_parked()), [1, 2]);
    let [first, second] = [&older, &newer].map(|request| table.begin_again(request, now).unwrap().1);
    table.on_reply(&older, first, queued(), now);
    table.on_reply(&newer, second, Err(Error::no_response()), now);
    let told = table.poll_outcome(2, now, Waker::noop());
    assert!(matches!(told, Poll::Ready(Outcome::Told(Told::Again(Some(_))))));
    table.on_inbox_ended(epoch);
    let (_, epoch) = table.take_wanted().expect("the older one waits");
    table.on_inbox_open(epoch, now);
    assert!(table.begin(&newer, now).is_none(), "it waits for the older one");
    assert_eq!(numbers(&table.take_parked()), [1, 2]);
}

/// It may still have its place in the queue of the server, and those that wait for it have none.
#[test]
fn request_whose_reply_was_lost_is_sent_again_by_its_caller_while_its_inbox_lasts() {
    let (mut table, now, request) = (Table::new(), BootInstant::now(), request(7));
    let (_, sending) = table.begin(&request, now).expect("the first one");
    table.on_reply(&request, sending, Err(Error::no_response()), now);
    _ = table.poll_outcome(7, now, Waker::noop());
    assert!(table.begin(&request, now).is_some());
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
