/** Metrics of DLOCK for Micrometer: {@link dlock.micrometer.DlockMetrics}. */
@NullMarked
package dlock.micrometer;

import org.jspecify.annotations.NullMarked;
