package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replicate"
)

// shownReplicas returns the VolumeReplicas. Those that are late are so at the time now. It is pure.
func (f facts) shownReplicas(show only, now time.Time) []replica.Copy {
	list := []replica.Copy{}
	for i := range f.replicas {
		if r := &f.replicas[i]; show.has(r.Namespace, r.Labels) {
			c := replica.Of(r, now)
			c.Message, c.RunnableMessage = shownText(c.Message), shownText(c.RunnableMessage)
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b replica.Copy) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list
}

// behind returns a sentence on the replicas that are late, suspect or refused.
func behind(replicas []replica.Copy) (lines []string) {
	var names []string
	for _, c := range replicas {
		if c.Behind() {
			names = append(names, fmt.Sprintf("%s/%s (%s)", c.Namespace, c.Name, c.Words()))
		}
	}
	return append(listed(names, "replicas that are late or suspect, or that something keeps from being made"), cannotRun(replicas)...)
}

// cannotRun returns a sentence on the replicas whose standby could not run the pods.
func cannotRun(replicas []replica.Copy) []string {
	var names []string
	for _, c := range replicas {
		if c.CannotRun() != "" {
			names = append(names, fmt.Sprintf("%s/%s (%s)", c.Namespace, c.Name, c.Standby))
		}
	}
	return listed(names, "replicas whose standby could not run the pods that use them now")
}

// listed returns a sentence that names some replicas, and no more than a few of them.
func listed(names []string, are string) []string {
	const most = 5
	if len(names) == 0 {
		return nil
	}
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []string{are + ": " + text + "; kubectl lodestone replicate status -A says of each why"}
}

// replicaTable prints replicas, those with something wrong first, and not too many of them.
func replicaTable(out io.Writer, replicas []replica.Copy, wide bool, now time.Time) error {
	if len(replicas) == 0 {
		return nil
	}
	copies := slices.Clone(replicas)
	slices.SortStableFunc(copies, func(a, b replica.Copy) int { return cmp.Compare(rank(a), rank(b)) })
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if err := cli.PrintTable(out, replicate.Table(copies[:min(shown, len(copies))], true, now), wide); err != nil {
		return err
	}
	if more := len(copies) - shown; more > 0 {
		_, err := fmt.Fprintf(out, "and %d more: kubectl lodestone replicate status -A lists them\n", more)
		return err
	}
	return nil
}

func rank(c replica.Copy) int {
	switch {
	case c.Behind():
		return 0
	case c.Healthy:
		return 2
	}
	return 1
}
