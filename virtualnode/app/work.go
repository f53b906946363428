package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

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
func workers(_ Shared) ([]Worker, error) {
	return []Worker{}, nil
}
