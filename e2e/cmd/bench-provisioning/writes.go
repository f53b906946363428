package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// sample is how many claims the writes are counted over; settle is how long
// after the last is bound the writes that nobody waits for are counted too.
const (
	sample = 10
	settle = 2 * time.Second
)

// writes counts what Lodestone writes for one claim from its creation until it
// is bound, as the audit logs of both API servers show it.
func (b *bench) writes(ctx context.Context) ([]measure.Result, error) {
	var results []measure.Result
	for _, r := range []route{local, remote} {
		before, err := b.count()
		if err != nil {
			return nil, err
		}
		if _, _, err := b.hold(ctx, r, sample); err != nil {
			return nil, err
		}
		time.Sleep(settle)
		after, err := b.count()
		if err != nil {
			return nil, err
		}
		if err := b.clear(ctx); err != nil {
			return nil, err
		}
		total, events := 0, 0
		for _, what := range slices.Sorted(maps.Keys(after)) {
			n := after[what] - before[what]
			if n == 0 {
				continue
			}
			say("writes, %s: %s %.1f a claim", r.name, what, float64(n)/sample)
			if strings.HasSuffix(what, " events") {
				events += n
			} else {
				total += n
			}
		}
		results = append(results,
			measure.Figure(fmt.Sprintf("API writes for one claim, %s route", r.name), float64(total)/sample, "writes"),
			measure.Figure(fmt.Sprintf("API writes for one claim, %s route, events", r.name), float64(events)/sample, "writes"))
	}
	return results, nil
}

// count returns how often each kind of write was made with Lodestone's rights.
func (b *bench) count() (map[string]int, error) {
	counts := map[string]int{}
	for _, cluster := range []string{b.bed.Home.Name(), b.bed.West.Name()} {
		writes, err := b.bed.Writes(cluster)
		if err != nil {
			return nil, err
		}
		for what, n := range writes {
			counts[cluster+": "+what] += n
		}
	}
	return counts, nil
}
