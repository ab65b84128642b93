package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LockOptionsTest {
    private static final LockOptions DEFAULTS = LockOptions.defaults();
    private static final Duration FOREVER = Duration.ofSeconds(Long.MAX_VALUE);

    @Test
    void fractions_of_a_millisecond_are_rounded_up() {
        assertEquals(Duration.ofMillis(1), DEFAULTS.lease(Duration.ofNanos(1)).lease());
        assertEquals(Duration.ofMillis(3), DEFAULTS.timeout(Duration.ofNanos(2_000_001)).timeout());
        assertEquals(Duration.ofMillis(2), DEFAULTS.maxHold(Duration.ofMillis(2)).maxHold());
    }

    @ParameterizedTest
    @ValueSource(longs = {-1, -400_000, Long.MIN_VALUE})
    void negative_times_are_refused(long nanos) {
        Duration time = Duration.ofNanos(nanos);
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.lease(time));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.timeout(time));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.maxHold(time));
    }

    @Test
    void only_a_timeout_may_be_zero() {
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.lease(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.maxHold(Duration.ZERO));
        assertEquals(Duration.ZERO, DEFAULTS.timeout(Duration.ZERO).timeout());
    }

    @Test
    void time_that_a_clock_cannot_count_is_no_limit_but_no_lease() {
        assertEquals(Clock.NEVER, LockOptions.nanos(DEFAULTS.timeout(Duration.ofDays(365_000)).timeout()));
        assertEquals(Clock.NEVER, LockOptions.nanos(DEFAULTS.timeout()));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.lease(FOREVER));
    }

    @Test
    void shared_lock_with_a_limit_is_refused() {
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.shared().limit(2));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.limit(2).shared());
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.limit(0));
        assertEquals(List.of("LIMIT", 2), DEFAULTS.limit(2).kind());
        assertEquals(List.of("SHARED"), DEFAULTS.shared().kind());
    }

    @Test
    void owner_has_one_to_512_bytes() {
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.owner(""));
        assertThrows(IllegalArgumentException.class, () -> DEFAULTS.owner("ü".repeat(257)));
        assertEquals("ü".repeat(256), DEFAULTS.owner("ü".repeat(256)).owner());
    }
}
