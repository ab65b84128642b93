//! What goes wrong.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Signal, Way};

use crate::outcome::{Outcome, within};
use crate::scenario::Fields;
use crate::setting::is_synchronous;
use crate::world::World;

/// `network`: what becomes of the connections between a driver and the server.
pub fn network(world: &mut World, fields: &mut Fields) -> Outcome {
    let change = fields.take_text("network")?;
    let delay = fields.take_number("ms")?.map(Duration::from_millis);
    let name = fields.take_driver()?;
    let proxy = &world.driver(&name)?.proxy;
    match (change.as_str(), delay) {
        ("cut", None) => proxy.cut(),
        ("refuse", None) => {
            proxy.refuse(true);
            proxy.cut();
        }
        ("accept", None) => proxy.refuse(false),
        ("strand", None) => proxy.strand(),
        ("deliver_late", None) => proxy.deliver_late(),
        ("delay_replies", Some(delay)) => proxy.delay(Way::ToClient, delay),
        ("delay_requests", Some(delay)) => proxy.delay(Way::ToServer, delay),
        _ => return Err("no such change of the network".into()),
    }
    Ok(())
}

/// `strand_request`: the connection of the next request with this word is dead, but open, and the request has not arrived.
pub fn strand_request(world: &mut World, fields: &mut Fields) -> Outcome {
    let word = fields.take_text("strand_request")?;
    let name = fields.take_driver()?;
    world.driver(&name)?.proxy.strand_request(&word);
    Ok(())
}

/// `lose_replies_to`: the server carries out the next requests with this word, but the replies are lost with their
/// connections.
pub fn lose_replies_to(world: &mut World, fields: &mut Fields) -> Outcome {
    let word = fields.take_text("lose_replies_to")?;
    let (name, times) = (fields.take_driver()?, times(fields)?);
    world.driver(&name)?.proxy.lose_replies_to(&word, times);
    world.loses_replies_to = word;
    Ok(())
}

/// `lose_replies_with`: the next replies with this word are lost, with their connections.
pub fn lose_replies_with(world: &mut World, fields: &mut Fields) -> Outcome {
    let word = fields.take_text("lose_replies_with")?;
    let (name, times) = (fields.take_driver()?, times(fields)?);
    world.driver(&name)?.proxy.lose_replies_with(&word, times);
    Ok(())
}

fn times(fields: &mut Fields) -> Outcome<usize> {
    Ok(fields.take_number("times")?.unwrap_or(1) as usize)
}

/// `wait_for_lost_replies`: until all those replies were lost.
pub fn wait_for_lost_replies(world: &mut World, fields: &mut Fields) -> Outcome {
    let name = fields.take_text("wait_for_lost_replies")?;
    let limit = fields.take_limit()?;
    // The grant may come otherwise before.
    if is_synchronous() && world.loses_replies_to == "DLOCK.ACQUIRE" {
        return Ok(());
    }
    let proxy = &world.driver(&name)?.proxy;
    within(limit, || match proxy.replies_to_lose() {
        0 => Ok(()),
        left => Err(format!("{left} replies are still to be lost")),
    })
}

/// `kill_connection`: the server closes the connections whose last command is this one.
pub fn kill_connection(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = fields.take_text("kill_connection")?;
    let mut client = world.client()?;
    for id in connections_in(&mut client, &command, fields.take_limit()?)? {
        client.ask::<i64>(&format!("CLIENT KILL ID {id}"));
    }
    Ok(())
}

/// `unblock`: this blocking command fails with UNBLOCKED.
pub fn unblock(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = fields.take_text("unblock")?;
    let mut client = world.client()?;
    for id in connections_in(&mut client, &command, fields.take_limit()?)? {
        client.ask::<i64>(&format!("CLIENT UNBLOCK {id} ERROR"));
    }
    Ok(())
}

/// The ids of the connections whose last command is this one, once there are any.
fn connections_in(client: &mut Client, command: &str, limit: Duration) -> Outcome<Vec<String>> {
    let last = format!("cmd={command}");
    // A reader may just be between two calls.
    within(limit, || {
        let clients: String = client.ask("CLIENT LIST");
        let found = clients
            .lines()
            .filter(|line| line.split(' ').any(|field| field == last));
        let ids = found.filter_map(|line| line.strip_prefix("id=")?.split_once(' '));
        let ids: Vec<String> = ids.map(|(id, _)| id.to_owned()).collect();
        if ids.is_empty() {
            Err(format!("no connection with {last}"))
        } else {
            Ok(ids)
        }
    })
}

/// `signal`: STOP, CONT or KILL to a driver.
pub fn signal(world: &mut World, fields: &mut Fields) -> Outcome {
    let signal = match fields.take_text("signal")?.as_str() {
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "KILL" => Signal::KILL,
        other => return Err(format!("no signal {other}")),
    };
    let name = fields.take_driver()?;
    world.driver(&name)?.signal(signal);
    Ok(())
}

/// `server_process`: the server is stopped, crashes, starts again, or hands over to its replica.
pub fn server_process(world: &mut World, fields: &mut Fields) -> Outcome {
    match fields.take_text("server_process")?.as_str() {
        "stop" => world.server.stop(),
        "resume" => world.server.resume(),
        "crash_and_restart" => {
            let has_data = world.server.client().config("appendonly") == "yes";
            if !has_data {
                world.losses.push((Instant::now(), None));
            }
            world.server.crash_and_restart();
        }
        "fail_over" => world.fail_over()?,
        other => return Err(format!("a server does not {other}")),
    }
    Ok(())
}
