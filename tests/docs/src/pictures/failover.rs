//! A grant that a replica never heard of, without and with a grace.

use super::svg::{Anchor::Middle, Anchor::Start, Svg};

/// Where things happen on the axis of time.
const GRANT: i32 = 130;
const CRASH: i32 = 210;
const PROMOTION: i32 = 290;
const ASKS: i32 = 330;
const LEASE_END: i32 = 440;
const GRACE_END: i32 = 600;
const END: i32 = 780;

pub fn draw() -> Svg {
    let mut svg = Svg::new(820, 520, "A failover without and with a grace");

    svg.text("bold", Start, [32, 40], "Without a grace");
    svg.rect("overlap", [ASKS, 58, LEASE_END - ASKS, 142], 6);
    frame(&mut svg, 62);
    svg.pill(
        "server",
        [PROMOTION, 112, END - PROMOTION, 34],
        "new primary: does not know of alice",
    );
    svg.pill("bob", [ASKS, 158, END - ASKS, 34], "bob holds the lock");
    svg.text("bad bold", Middle, [(ASKS + LEASE_END) / 2, 224], "two holders");

    svg.path("axis", "M32 252 H788");

    svg.text(
        "bold",
        Start,
        [32, 290],
        "With a grace as long as the longest lease",
    );
    frame(&mut svg, 312);
    svg.rect("grace", [PROMOTION, 362, GRACE_END - PROMOTION, 34], 17);
    svg.text(
        "",
        Middle,
        [(PROMOTION + GRACE_END) / 2, 384],
        "new primary: grace, no grants",
    );
    svg.pill("server", [GRACE_END, 362, END - GRACE_END, 34], "new primary");
    svg.path("axis dashed", &format!("M{ASKS} 425 H{GRACE_END}"));
    svg.text(
        "small soft",
        Middle,
        [(ASKS + GRACE_END) / 2, 419],
        "bob waits in the queue",
    );
    svg.pill("bob", [GRACE_END, 408, END - GRACE_END, 34], "bob holds the lock");
    svg.path("axis dashed", &format!("M{LEASE_END} 352 V452"));
    svg.text("good bold", Middle, [LEASE_END, 474], "one holder at a time");
    svg.path("arrow", "M32 496 H788");
    svg.text("small soft", Start, [32, 488], "time");
    svg
}

/// What is the same in both: alice's grant, and the end of the old primary.
fn frame(svg: &mut Svg, y: i32) {
    for (row, name) in (0..).zip(["alice", "server", "bob"]) {
        svg.text("soft", Start, [32, y + 26 + row * 46], name);
    }
    svg.pill(
        "alice",
        [GRANT, y + 4, LEASE_END - GRANT, 34],
        "alice holds the lock",
    );
    svg.pill("server", [GRANT - 30, y + 50, CRASH - GRANT + 30, 34], "primary");
    let middle = y + 67;
    let (left, right, up, down) = (CRASH + 8, CRASH + 22, middle - 7, middle + 7);
    svg.path(
        "cross",
        &format!("M{left} {up} L{right} {down} M{left} {down} L{right} {up}"),
    );
    svg.text("small soft", Start, [CRASH + 28, middle + 5], "dies");
}
