// River under measurement: the same errands as every other system (see bench/errand.py).
//
//	river migrate | enqueue COUNT PREFIX | load RATE SECONDS PREFIX | work
//
// Tuned as its documentation advises for throughput: FetchCooldown 10 ms, 200 workers, the bulk completer, and the
// result kept with RecordOutput, which is stored with the completion.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	bodyBytes     = 400
	enqueueBatch  = 500
	fetchCooldown = 10 * time.Millisecond
	orders        = "create table orders (id bigint generated always as identity primary key, key text not null, provider_id text)"
)

type messageArgs struct {
	Key     string `json:"key"`
	Payload string `json:"payload"`
}

func (messageArgs) Kind() string { return "message" }

type messageWorker struct {
	river.WorkerDefaults[messageArgs]
	client *http.Client
	url    string
}

type answer struct {
	ID string `json:"id"`
}

func (w *messageWorker) Work(ctx context.Context, job *river.Job[messageArgs]) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(job.Args.Payload))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer bench-api-key")
	request.Header.Set("Idempotency-Key", job.Args.Key)
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	var said answer
	if err := json.Unmarshal(body, &said); err != nil {
		return err
	}
	return river.RecordOutput(ctx, said)
}

func payloadOf(key string) string {
	head := `{"to": "oncall@example.com", "text": "`
	tail := `", "subject": "` + key + `"}`
	return head + strings.Repeat("x", bodyBytes-len(head)-len(tail)) + tail
}

func keysOf(prefix string, count int) []string {
	keys := make([]string, count)
	for number := range keys {
		keys[number] = fmt.Sprintf("%s-%08d", prefix, number)
	}
	return keys
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func migrate(ctx context.Context, pool *pgxpool.Pool) {
	must(pool.Exec(ctx, orders))
	migrator := must(rivermigrate.New(riverpgxv5.New(pool), nil))
	must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
}

// enqueue commits the business rows and the jobs in one transaction.
func enqueue(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx], keys []string) {
	transaction := must(pool.Begin(ctx))
	must(transaction.Exec(ctx, "insert into orders (key) select unnest($1::text[])", keys))
	jobs := make([]river.InsertManyParams, len(keys))
	for at, key := range keys {
		jobs[at] = river.InsertManyParams{Args: messageArgs{Key: key, Payload: payloadOf(key)}}
	}
	must(client.InsertManyFastTx(ctx, transaction, jobs))
	check(transaction.Commit(ctx))
}

func monotonic() float64 {
	// CLOCK_MONOTONIC, which every process on this machine shares.
	var now syscall.Timespec
	_, _, failure := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	if failure != 0 {
		log.Fatal(failure)
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

func load(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx], rate float64, keys []string) {
	committed := map[string]float64{}
	began := time.Now()
	for number, key := range keys {
		time.Sleep(time.Until(began.Add(time.Duration(float64(number) / rate * float64(time.Second)))))
		enqueue(ctx, pool, client, []string{key})
		committed[key] = monotonic()
	}
	fmt.Println(string(must(json.Marshal(committed))))
}

func work(ctx context.Context, pool *pgxpool.Pool) {
	inFlight := must(strconv.Atoi(os.Getenv("BENCH_IN_FLIGHT")))
	transport := &http.Transport{MaxIdleConns: inFlight, MaxIdleConnsPerHost: inFlight, DisableCompression: true}
	workers := river.NewWorkers()
	river.AddWorker(workers, &messageWorker{
		client: &http.Client{Transport: transport}, url: os.Getenv("BENCH_PROVIDER_URL") + "/messages",
	})
	client := must(river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: fetchCooldown,
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: inFlight}},
		Workers:       workers,
	}))
	check(client.Start(ctx))
	fmt.Println(`{"event": "ready"}`)
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	<-stopping
	check(client.Stop(ctx))
}

func main() {
	ctx := context.Background()
	configuration := must(pgxpool.ParseConfig(os.Getenv("BENCH_DSN")))
	configuration.MaxConns = 10
	pool := must(pgxpool.NewWithConfig(ctx, configuration))
	defer pool.Close()
	arguments := os.Args[1:]
	insertOnly := func() *river.Client[pgx.Tx] {
		// The inserting client's cooldown also bounds how often it notifies the workers.
		return must(river.NewClient(riverpgxv5.New(pool), &river.Config{FetchCooldown: fetchCooldown}))
	}
	switch {
	case len(arguments) == 1 && arguments[0] == "migrate":
		migrate(ctx, pool)
	case len(arguments) == 3 && arguments[0] == "enqueue":
		client := insertOnly()
		keys := keysOf(arguments[2], must(strconv.Atoi(arguments[1])))
		for at := 0; at < len(keys); at += enqueueBatch {
			enqueue(ctx, pool, client, keys[at:min(at+enqueueBatch, len(keys))])
		}
	case len(arguments) == 4 && arguments[0] == "load":
		rate := must(strconv.ParseFloat(arguments[1], 64))
		seconds := must(strconv.ParseFloat(arguments[2], 64))
		load(ctx, pool, insertOnly(), rate, keysOf(arguments[3], int(rate*seconds)))
	case len(arguments) == 1 && arguments[0] == "work":
		work(ctx, pool)
	case len(arguments) == 1 && arguments[0] == "dismantle":
	default:
		_, _ = io.Copy(os.Stderr, bytes.NewBufferString("usage: see bench/errand.py\n"))
		os.Exit(2)
	}
}
