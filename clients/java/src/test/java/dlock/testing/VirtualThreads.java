package dlock.testing;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Virtual threads, which JDKs have from 21 on. */
public final class VirtualThreads {
    private VirtualThreads() {}

    /** One for each task. Skips the test on an older JDK. */
    public static ExecutorService executor() {
        assumeTrue(Runtime.version().feature() >= 21, "this JDK has no virtual threads");
        var type = MethodType.methodType(ExecutorService.class);
        try {
            return (ExecutorService) MethodHandles.lookup()
                    .findStatic(Executors.class, "newVirtualThreadPerTaskExecutor", type).invoke();
        } catch (Throwable error) {
            throw new AssertionError(error);
        }
    }
}
