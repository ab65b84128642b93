//! One release, one grant, and nobody else is woken.

use super::svg::{Anchor::Middle, Anchor::Start, Svg};

const WAITERS: [&str; 3] = ["bob", "carol", "dave"];

pub fn draw() -> Svg {
    let mut svg = Svg::new(820, 330, "The queue of a lock before and after a release");
    row(&mut svg, 44, "before", "alice", 7, &WAITERS);
    row(&mut svg, 206, "after", "bob", 8, &WAITERS[1..]);

    svg.path("arrow", "M425 118 C425 168 330 150 286 206");
    svg.text("bold", Start, [440, 158], "alice: RELEASE");
    svg.text(
        "small soft",
        Start,
        [440, 180],
        "gives back and grants, in one step of the server",
    );
    svg.text(
        "small good bold",
        Middle,
        [503, 304],
        "not woken, not asked: nothing for them to do",
    );
    svg
}

fn row(svg: &mut Svg, y: i32, when: &str, holder: &str, fence: u32, waiters: &[&str]) {
    svg.text("soft", Start, [32, y + 43], when);

    svg.rect("box", [110, y, 220, 74], 12);
    svg.pill(holder, [126, y + 18, 100, 38], holder);
    svg.text("small soft", Start, [240, y + 42], &format!("fence {fence}"));

    for (place, waiter) in (0..).zip(waiters) {
        let x = 385 + place * 140;
        svg.path(
            "arrow",
            &format!(
                "M{} {} H{}",
                x - 6,
                y + 37,
                x - 49 + if place == 0 { 0 } else { 11 }
            ),
        );
        svg.pill(waiter, [x, y + 18, 96, 38], waiter);
    }
}
