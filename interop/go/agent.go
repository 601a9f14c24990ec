// A redsync client in its own process, which takes one JSON request per line: interop/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Time limit of a command and of connecting.
const patience = 90 * time.Second

type request struct {
	ID      uint64  `json:"id"`
	Op      string  `json:"op"`
	Name    string  `json:"name"`
	TTL     int64   `json:"ttl_ms"`
	Wait    int64   `json:"wait_ms"`
	Handle  uint64  `json:"handle"`
	Tasks   int     `json:"tasks"`
	Seconds float64 `json:"seconds"`
}

type agent struct {
	sync  *redsync.Redsync
	out   sync.Mutex
	locks sync.Mutex
	held  map[uint64]*redsync.Mutex
	next  uint64
}

func main() {
	var pools []redsyncredis.Pool
	for _, url := range strings.Split(os.Args[1], ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		// Enough connections for all concurrent tasks of the bench.
		options.PoolSize = 64
		// No timeout, so that no command is sent twice on a slow machine.
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = patience, patience, patience
		options.MaxRetries = -1
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	a := &agent{sync: redsync.New(pools...), held: map[uint64]*redsync.Mutex{}}
	a.say(map[string]any{"ready": true, "version": version()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		go a.serve(r)
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/go-redsync/redsync/v4" {
			return "redsync " + dep.Version
		}
	}
	return "redsync"
}

func (a *agent) say(answer map[string]any) {
	line, _ := json.Marshal(answer)
	a.out.Lock()
	defer a.out.Unlock()
	fmt.Println(string(line))
}

func (a *agent) serve(r request) {
	value, err := a.act(r)
	if err != nil {
		a.say(map[string]any{"id": r.ID, "ok": false, "error": err.Error()})
		return
	}
	a.say(map[string]any{"id": r.ID, "ok": true, "value": value})
}

func (a *agent) act(r request) (any, error) {
	switch r.Op {
	case "lock":
		return a.lock(r)
	case "extend", "release":
		a.locks.Lock()
		mutex := a.held[r.Handle]
		a.locks.Unlock()
		if mutex == nil {
			return nil, fmt.Errorf("no lock %d", r.Handle)
		}
		// redsync returns an error if the lock is no longer held on most servers.
		var done bool
		if r.Op == "extend" {
			done, _ = mutex.Extend()
		} else {
			done, _ = mutex.Unlock()
		}
		return done, nil
	case "bench":
		return a.bench(r), nil
	}
	return nil, fmt.Errorf("no operation %q", r.Op)
}

// Returns a handle of the lock, or nil if it was not granted.
func (a *agent) lock(r request) (any, error) {
	options := []redsync.Option{redsync.WithExpiry(time.Duration(r.TTL) * time.Millisecond)}
	ctx := context.Background()
	if r.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Wait)*time.Millisecond)
		defer cancel()
		options = append(options, redsync.WithTries(1<<30))
	} else {
		options = append(options, redsync.WithTries(1))
	}
	mutex := a.sync.NewMutex(r.Name, options...)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, nil
	}
	a.locks.Lock()
	defer a.locks.Unlock()
	a.next++
	a.held[a.next] = mutex
	return a.next, nil
}

// Measures lock and unlock. Each task has its own name.
func (a *agent) bench(r request) map[string]any {
	begin := time.Now().Add(10 * time.Millisecond)
	end := begin.Add(time.Duration(r.Seconds * float64(time.Second)))
	counts := make([]int, r.Tasks)
	times := make([][]time.Duration, r.Tasks)
	var all sync.WaitGroup
	for task := range r.Tasks {
		all.Add(1)
		go func() {
			defer all.Done()
			name := fmt.Sprintf("%s%d", r.Name, task)
			time.Sleep(time.Until(begin))
			for {
				asked := time.Now()
				if !asked.Before(end) {
					return
				}
				mutex := a.sync.NewMutex(name, redsync.WithExpiry(time.Duration(r.TTL)*time.Millisecond))
				if err := mutex.Lock(); err != nil {
					panic(err)
				}
				if _, err := mutex.Unlock(); err != nil {
					panic(err)
				}
				counts[task]++
				times[task] = append(times[task], time.Since(asked))
			}
		}()
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	var every []time.Duration
	for _, some := range times {
		every = append(every, some...)
	}
	sort.Slice(every, func(i, j int) bool { return every[i] < every[j] })
	at := func(share float64) float64 {
		return float64(every[min(int(share*float64(len(every))), len(every)-1)].Nanoseconds()) / 1e3
	}
	return map[string]any{"seconds": took, "counts": counts, "p50_us": at(0.5), "p99_us": at(0.99), "worst_us": at(1)}
}
