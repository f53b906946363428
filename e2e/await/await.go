// Package await is how tests wait: until something comes about, or for a while to
// see that it does not. Tests say what they wait for, not how long.
package await

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/must"
)

// Long is the most that a test waits for something, Soon is when it looks again for the
// first time and Often how often it looks after a while, and Steady is how long it watches
// for what must not happen.
const (
	Long   = 150 * time.Second
	Soon   = 5 * time.Millisecond
	Often  = 150 * time.Millisecond
	Steady = 2 * time.Second
)

// waited is how long the tests of this process have waited together, in nanoseconds.
var waited atomic.Int64

// Waited is how long the tests of this process have waited together so far: more than it
// has run if some wait at the same time.
func Waited() time.Duration { return time.Duration(waited.Load()) }

// stretched is by how much tests wait longer than Long.
var stretched atomic.Int64

// Stretch has tests wait so many times as long until the test ends: for one in which programs die all the time.
func Stretch(t testing.TB, times int64) {
	stretched.Store(times)
	t.Cleanup(func() { stretched.Store(1) })
}

func count(started time.Time) { waited.Add(int64(time.Since(started))) }

// Until waits until done, and fails the test if that takes too long. now, if
// given, says how things are then.
func Until(t testing.TB, what string, done func() bool, now ...func() any) {
	t.Helper()
	defer count(time.Now())
	pause := Soon
	for deadline := time.Now().Add(Long * time.Duration(max(1, stretched.Load()))); !done(); pause = min(2*pause, Often) {
		if time.Now().After(deadline) {
			var state strings.Builder
			for _, tell := range now {
				fmt.Fprintf(&state, "now: %+v\n", tell())
			}
			require.Fail(t, "waited too long until "+what, state.String())
		}
		time.Sleep(pause)
	}
}

// Never watches for a while that something does not happen; what says how it must
// be.
func Never(t testing.TB, what string, happened func() bool) {
	t.Helper()
	Always(t, what, func() bool { return !happened() })
}

// Always watches for a while that something stays so; what says how it must be.
func Always(t testing.TB, what string, holds func() bool) {
	t.Helper()
	defer count(time.Now())
	for deadline := time.Now().Add(Steady); time.Now().Before(deadline); time.Sleep(Often) {
		require.True(t, holds(), what)
	}
}

// Event waits for an event with a reason about an object, and returns its message.
func Event(t testing.TB, client kubernetes.Interface, namespace, name, reason string) string {
	t.Helper()
	message := ""
	Until(t, fmt.Sprintf("there is an event %s about %s/%s", reason, namespace, name), func() bool {
		for _, event := range list(t, client, namespace) {
			if event.InvolvedObject.Name == name && event.Reason == reason {
				message = event.Message
				return true
			}
		}
		return false
	}, func() any { return Events(t, client, namespace) })
	return message
}

// Events returns the events of a namespace, a line each.
func Events(t testing.TB, client kubernetes.Interface, namespace string) []string {
	t.Helper()
	var lines []string
	for _, e := range list(t, client, namespace) {
		lines = append(lines, fmt.Sprintf("%s %s/%s %s: %s", e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return lines
}

func list(t testing.TB, client kubernetes.Interface, namespace string) []corev1.Event {
	t.Helper()
	// Also while the test cleans up.
	events, err := client.CoreV1().Events(namespace).List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
	require.NoError(t, err)
	return events.Items
}

// Claim returns a claim as the API server has it now, nil if there is none.
func Claim(t testing.TB, client kubernetes.Interface, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Find(t, client.CoreV1().PersistentVolumeClaims(namespace), name)
}

// Pod returns a pod as the API server has it now, nil if there is none.
func Pod(t testing.TB, client kubernetes.Interface, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Find(t, client.CoreV1().Pods(namespace), name)
}

// Volume returns a volume as the API server has it now, nil if there is none.
func Volume(t testing.TB, client kubernetes.Interface, name string) *corev1.PersistentVolume {
	t.Helper()
	return must.Find(t, client.CoreV1().PersistentVolumes(), name)
}
