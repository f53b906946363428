package reflector

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a look at one object.
const (
	inStep  = "in-step"
	retried = "retried"
	refused = "refused"
)

// newLooks returns the count of looks at single objects, registered with
// registerer unless that is nil.
func newLooks(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	looks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_virtualnode_reflections_total",
		Help: "Looks at single objects that follow pods to a remote cluster, by cluster, kind and result.",
	}, []string{"cluster", "kind", "result"})
	if registerer != nil {
		if err := registerer.Register(looks); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return looks, nil
}
