package dlock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Is called once with an outcome: with an error, or with a value, which may be null. */
@FunctionalInterface
interface Done<T extends @Nullable Object> {
    void take(@Nullable T value, @Nullable Throwable error);

    /** What is begun with a {@link Done}, as a future of the program. Its continuations never run in the loop. */
    static <T extends @Nullable Object> CompletableFuture<T> future(Consumer<Done<T>> begin) {
        CompletableFuture<T> future = new CompletableFuture<>();
        begin.accept((value, error) -> Loop.TELLING.execute(() -> complete(future, value, error)));
        return future;
    }

    /** Waits for what is begun with a {@link Done}. An interrupt ends the waiting only. */
    static <T extends @Nullable Object> T await(Consumer<Done<T>> begin) throws InterruptedException {
        CompletableFuture<T> future = new CompletableFuture<>();
        begin.accept((value, error) -> complete(future, value, error));
        return await(future);
    }

    /** As {@link #await(Consumer)}, but no interrupt ends the waiting. */
    static <T extends @Nullable Object> T join(Consumer<Done<T>> begin) {
        CompletableFuture<T> future = new CompletableFuture<>();
        begin.accept((value, error) -> complete(future, value, error));
        return join(future);
    }

    /** As {@link #await(CompletableFuture)}, but no interrupt ends the waiting. */
    static <T extends @Nullable Object> T join(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException failure) {
            throw here(failure.getCause());
        }
    }

    /** Waits for a future that is completed with one of our errors, which then shows where it was waited for. */
    static <T extends @Nullable Object> T await(CompletableFuture<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException failure) {
            throw here(failure.getCause());
        }
    }

    /** An error as the calling thread throws it. */
    static RuntimeException here(@Nullable Throwable error) {
        if (error instanceof RuntimeException ours) {
            ours.fillInStackTrace();
            return ours;
        }
        return new IllegalStateException(error);
    }

    static <T extends @Nullable Object> boolean complete(
            CompletableFuture<T> future, @Nullable T value, @Nullable Throwable error) {
        return error == null ? future.complete(value) : future.completeExceptionally(error);
    }
}
