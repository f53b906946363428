package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/virtualnode/pods"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/reflector"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Worker does one kind of work for a session; see session.Worker.
type Worker = session.Worker

// Shared is what all workers of all sessions have in common.
type Shared struct {
	// Home is the home cluster, HomeID its ID.
	Home   kubernetes.Interface
	HomeID string
	// Informers watch the home cluster. What is asked of them before workers
	// returns is started and in sync before the first session begins.
	Informers informers.SharedInformerFactory
	// Recorder makes events in the home cluster.
	Recorder record.EventRecorder
	// Metrics takes what is counted.
	Metrics *prometheus.Registry
}

// workers returns what runs for every session. It is called once.
func workers(shared Shared) ([]Worker, error) {
	reflected, err := reflector.New(reflector.Config{Client: shared.Home, Factory: shared.Informers, Recorder: shared.Recorder, Metrics: shared.Metrics})
	if err != nil {
		return nil, err
	}
	core := shared.Informers.Core().V1()
	offloaded, err := pods.New(pods.Config{
		Home: shared.Home, Recorder: shared.Recorder, Metrics: shared.Metrics,
		Pods: core.Pods().Informer(), Nodes: core.Nodes().Informer(), Namespaces: core.Namespaces().Informer(),
	})
	if err != nil {
		return nil, err
	}
	return []Worker{
		offloaded.Run,
		reflected.Run,
	}, nil
}
