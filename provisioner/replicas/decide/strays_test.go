package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

func TestMoversThatNoPointHasEndBeforeTheNextPointBeginsAndTheHeadGoes(t *testing.T) {
	for name, deleted := range map[string]*metav1.Time{"the next point is due": nil, "the replica was deleted": {Time: noon}} {
		t.Run(name, func(t *testing.T) {
			o := observation(0)
			o.Now, o.Replica.DeletionTimestamp, o.Claims[0].Head = noon.Add(time.Hour), deleted, head("h1")
			o.Strays = []decide.Stray{{Name: "a", Leaving: true}, {Name: "b"}}
			assert.Equal(t, decide.DropStray{Name: "b"}, decide.Next(o).Action)
			o.Strays[1].Leaving = true
			step := decide.Next(o)
			assert.Nil(t, step.Action)
			assert.Contains(t, step.Say, "waiting until mover shop/a at the standby has ended")
			assert.Equal(t, deleted != nil, step.Reason == decide.BeingRemoved)
			o.Strays = nil
			assert.NotNil(t, decide.Next(o).Action)
		})
	}
	o := observation(1) // whose next point is not due
	o.Strays, o.Replica.Spec.Paused = []decide.Stray{{Name: "a"}}, true
	assert.Equal(t, decide.DropStray{Name: "a"}, decide.Next(o).Action, "it may write")
}
