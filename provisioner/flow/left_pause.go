package flow

import "time"

// What is left in a cluster is told of some time after it was noted, so that what
// is noted together is told together; each time in a row after twice that, at most
// leftSeldom. After leftRest all begins anew. Events on a RemoteCluster are few, and
// others need them.
const (
	leftSoon   = 10 * time.Second
	leftSeldom = 10 * time.Minute
	leftRest   = time.Hour
)

// toldOf is what was told of a cluster's leftovers.
type toldOf struct {
	// number is that of the latest that was told of.
	number int
	// row is how often it was told in a row, when the last time.
	row  int
	when time.Time
}

// pause is how long after now what is left in a cluster is to be told.
func (l *leftovers) pause(cluster string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told[cluster]
	if now.Sub(told.when) > leftRest {
		return leftSoon
	}
	return min(leftSoon<<min(told.row, 8), leftSeldom)
}

// summary is what there is to tell of a cluster; empty if nothing new is left there.
func (l *leftovers) summary(cluster string, now time.Time) string {
	there := l.in(cluster)
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told[cluster]
	if len(there) == 0 || there[0].number <= told.number {
		return ""
	}
	if now.Sub(told.when) > leftRest {
		told.row = 0
	}
	l.told[cluster] = toldOf{number: there[0].number, row: told.row + 1, when: now}
	return leftText(cluster, there)
}
