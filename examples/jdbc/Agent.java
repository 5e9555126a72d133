import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.postgresql.util.PSQLException;

/**
 * An agent that confirms orders by email, with JDBC and SQL alone.
 *
 * <p>Run it twice with the same order: the second run finds what the first one did, and sends nothing.
 *
 * <p>{@code DATABASE_URL=postgresql://outbox_agent@localhost/app java -cp ... Agent order-1}
 */
public final class Agent {
  private static final String SERIALIZATION_FAILURE = "40001";
  private static final String INTENT_CONFLICT = "OB001";
  private static final int ATTEMPTS = 5;

  // setString sends varchar, which PostgreSQL does not turn into jsonb by itself (42804): the statement has the cast.
  private static final String ENQUEUE =
      "select action_id from outbox.enqueue('resend', 'emails.send', ?, ?::jsonb)";
  private static final String INSERT =
      "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
          + " values ('resend', 'emails.send', ?, ?::jsonb) returning action_id";
  private static final String STATUS =
      "select advice, execution_state, delivery_state, check_again_at from outbox.action_status"
          + " where idempotency_key = ?";
  private static final String NEW_ORDER = "insert into shop.orders values (?, 'buyer@example.com', 'placed')";

  private final String order;

  private Agent(String order) {
    this.order = order;
  }

  /** Work inside one transaction. */
  private interface Work {
    String run(Connection connection) throws SQLException;
  }

  public static void main(String[] arguments) throws SQLException {
    new Agent(arguments.length > 0 ? arguments[0] : "order-1").tell();
  }

  private void tell() throws SQLException {
    try (Connection connection = connect()) {
      connection.setAutoCommit(false);
      say("committed", "action_id", place(connection));
      say("rolled_back", "actions", placeAndFail(connection, order + "-failed"));
      say("repeated", "action_id", place(connection));
      int again = rows(connection, INSERT, key(order, "confirm"), email(order, "Thank you")).size();
      connection.commit();
      say("inserted_again", "rows", again); // no error and no second row: RETURNING yields nothing
      changeMind(connection);
      race();
      List<String[]> status = rows(connection, STATUS, key(order, "confirm"));
      String[] row = status.get(0);
      say("status", "advice", row[0], "execution_state", row[1], "delivery_state", row[2], "check_again_at", row[3]);
      withoutCast(connection);
      connection.rollback();
    }
  }

  /** The key names what must happen once: tenant, object, id, verb, occurrence. Never a random part. */
  private static String key(String order, String verb) {
    return "shop:order:" + order + ":" + verb + ":1";
  }

  private static String email(String order, String subject) {
    return "{\"from\": \"shop@example.com\", \"to\": [\"buyer@example.com\"], \"subject\": " + json(subject)
        + ", \"text\": " + json(order) + "}";
  }

  /** Store the order and ask for its confirmation, together. Returns the action, new or existing. */
  private String place(Connection connection) throws SQLException {
    update(connection, NEW_ORDER + " on conflict do nothing", order);
    String action = rows(connection, ENQUEUE, key(order, "confirm"), email(order, "Thank you")).get(0)[0];
    connection.commit();
    return action;
  }

  /** Roll back after asking: nothing is left, so nothing will be sent. */
  private static int placeAndFail(Connection connection, String order) throws SQLException {
    update(connection, NEW_ORDER, order);
    rows(connection, INSERT, key(order, "confirm"), email(order, "Thank you"));
    connection.rollback();
    return rows(connection, STATUS, key(order, "confirm")).size();
  }

  /** Use a known key with another intent: refused, and with a savepoint the transaction goes on. */
  private void changeMind(Connection connection) throws SQLException {
    update(connection, "update shop.orders set status = 'confirming' where order_id = ?", order);
    Savepoint before = connection.setSavepoint();
    PSQLException refusal = null;
    try {
      rows(connection, INSERT, key(order, "confirm"), email(order, "Thank you SO much"));
    } catch (PSQLException error) {
      if (!INTENT_CONFLICT.equals(error.getSQLState())) {
        throw error;
      }
      connection.rollback(before);
      update(connection, "update shop.orders set status = 'already asked' where order_id = ?", order);
      refusal = error;
    }
    connection.commit();
    if (refusal != null) {
      say("refused", "sqlstate", refusal.getSQLState(), "detail", refusal.getServerErrorMessage().getDetail());
    }
  }

  /** Lose a race on purpose: a twin commits the same action after our snapshot was taken. */
  private void race() throws SQLException {
    String[] wanted = {key(order, "invoice"), email(order, "Your invoice")};
    withRetries(connection -> {
      rows(connection, "select status from shop.orders where order_id = ?", order);
      try (Connection twin = connect()) {
        rows(twin, ENQUEUE, wanted);
      }
      return rows(connection, ENQUEUE, wanted).get(0)[0];
    });
  }

  /** Run a transaction at REPEATABLE READ; begin again when another one was faster (40001). */
  private static void withRetries(Work work) throws SQLException {
    try (Connection connection = connect()) {
      connection.setAutoCommit(false);
      connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
      for (int attempt = 1; ; attempt++) {
        try {
          String action = work.run(connection);
          connection.commit();
          say("raced", "action_id", action, "attempts", attempt);
          return;
        } catch (SQLException error) {
          connection.rollback();
          if (!SERIALIZATION_FAILURE.equals(error.getSQLState()) || attempt == ATTEMPTS) {
            throw error;
          }
        }
      }
    }
  }

  /** What happens without the cast: refused before anything is stored. */
  private void withoutCast(Connection connection) {
    try {
      rows(connection, INSERT.replace("?::jsonb", "?"), key(order, "uncast"), email(order, "Thank you"));
    } catch (SQLException error) {
      say("without_cast", "sqlstate", error.getSQLState());
    }
  }

  /** The driver wants user and password apart from the address. */
  private static Connection connect() throws SQLException {
    URI url = URI.create(System.getenv("DATABASE_URL"));
    String[] login = url.getRawUserInfo() == null ? new String[0] : url.getRawUserInfo().split(":", 2);
    Properties properties = new Properties();
    if (login.length > 0) {
      properties.setProperty("user", decode(login[0]));
    }
    if (login.length > 1) {
      properties.setProperty("password", decode(login[1]));
    }
    String port = url.getPort() < 0 ? "" : ":" + url.getPort();
    return DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + port + url.getRawPath(), properties);
  }

  private static String decode(String text) {
    return java.net.URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
  }

  private static void update(Connection connection, String sql, String... values) throws SQLException {
    try (PreparedStatement statement = bound(connection, sql, values)) {
      statement.executeUpdate();
    }
  }

  private static List<String[]> rows(Connection connection, String sql, String... values) throws SQLException {
    try (PreparedStatement statement = bound(connection, sql, values); ResultSet result = statement.executeQuery()) {
      List<String[]> found = new ArrayList<>();
      while (result.next()) {
        String[] row = new String[result.getMetaData().getColumnCount()];
        for (int column = 0; column < row.length; column++) {
          row[column] = result.getString(column + 1);
        }
        found.add(row);
      }
      return found;
    }
  }

  private static PreparedStatement bound(Connection connection, String sql, String... values) throws SQLException {
    PreparedStatement statement = connection.prepareStatement(sql);
    for (int index = 0; index < values.length; index++) {
      statement.setString(index + 1, values[index]);
    }
    return statement;
  }

  /** Print one JSON line from names and values in turn. */
  private static void say(String step, Object... fields) {
    StringBuilder line = new StringBuilder("{\"step\": " + json(step));
    for (int index = 0; index < fields.length; index += 2) {
      Object value = fields[index + 1];
      line.append(", ").append(json((String) fields[index])).append(": ");
      line.append(value instanceof String ? json((String) value) : String.valueOf(value));
    }
    System.out.println(line.append("}"));
  }

  private static String json(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        quoted.append('\\').append(letter);
      } else if (letter < ' ') {
        quoted.append(String.format("\\u%04x", (int) letter));
      } else {
        quoted.append(letter);
      }
    }
    return quoted.append('"').toString();
  }
}
