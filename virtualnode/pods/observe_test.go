package pods

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

func TestEventsAreBounded(t *testing.T) {
	r := newRunner(t, &there{})
	recorder := record.NewFakeRecorder(2)
	r.config.Recorder = recorder
	k := key{uid: "u1", namespace: "shop", name: "db-0"}
	r.tell(k, homePodOn("west", "u1"), &decide.Message{Warning: true, Reason: "RemotePodLost", Text: "a" + strings.Repeat("ä", 100_000)})
	require.Len(t, recorder.Events, 1)
	event := <-recorder.Events
	assert.LessOrEqual(t, len(event), maxEvent+len("Warning RemotePodLost "))
	assert.True(t, utf8.ValidString(event))

	for range 4 {
		r.queue.AddRateLimited(k)
	}
	r.failed(k, decide.Observation{Pod: homePodOn("west", "u1")}, decide.Step{Verb: decide.Finish}, errors.New(strings.Repeat("x", 100_000)))
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, "`kubectl lodestone release pod` gives it up", "what to do is not cut off")
	assert.LessOrEqual(t, len(r.memory.problemOf(k)), maxEvent)
}
