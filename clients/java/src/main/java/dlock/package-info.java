/**
 * Distributed locks of DLOCK, a module for Redis and Valkey, with Lettuce.
 *
 * <p>{@link dlock.Locks#open(io.lettuce.core.AbstractRedisClient)} is the way in. Unless a type says otherwise, all times
 * are {@link java.time.Duration}s, nothing is {@code null}, and any thread may call any method, virtual threads too.
 */
@NullMarked
package dlock;

import org.jspecify.annotations.NullMarked;
