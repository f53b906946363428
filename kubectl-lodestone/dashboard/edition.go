package dashboard

import (
	"encoding/json"
	"fmt"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

// edition is a status as it was at one moment, encoded, and never changes.
type edition struct {
	// whole is what status -o json prints.
	whole []byte
	// head is what the page gets at every change: all but volumes, pods and replicas, of which there are many.
	head string
	// volumes, pods and replicas are by their keys in the page.
	volumes, pods, replicas map[string]string
}

// head is the part of an edition that is sent at every change.
type head struct {
	// Context is the user's name of the home cluster.
	Context string `json:"context"`
	// Problem says that the cluster does not answer, so that the rest is what it was.
	Problem string        `json:"problem,omitempty"`
	Status  status.Status `json:"status"`
}

func newEdition(context, problem string, s status.Status) (*edition, error) {
	e := &edition{volumes: map[string]string{}, pods: map[string]string{}, replicas: map[string]string{}}
	var err error
	if e.whole, err = json.MarshalIndent(s, "", "  "); err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	e.whole = append(e.whole, '\n')
	for _, volume := range s.Volumes {
		one, err := json.Marshal(volume)
		if err != nil {
			return nil, fmt.Errorf("encode a volume: %w", err)
		}
		e.volumes[volume.Namespace+"/"+volume.Claim+"/"+volume.Name] = string(one)
	}
	for _, pod := range s.Pods {
		one, err := json.Marshal(pod)
		if err != nil {
			return nil, fmt.Errorf("encode a pod: %w", err)
		}
		e.pods[pod.Namespace+"/"+pod.Name] = string(one)
	}
	for _, replica := range s.Replicas {
		one, err := json.Marshal(replica)
		if err != nil {
			return nil, fmt.Errorf("encode a replica: %w", err)
		}
		e.replicas[replica.Namespace+"/"+replica.Name] = string(one)
	}
	s.Volumes, s.Pods, s.Replicas = nil, nil, nil
	first, err := json.Marshal(head{Context: context, Problem: problem, Status: s})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	e.head = string(first)
	return e, nil
}

// update is what a page gets.
type update struct {
	// Whole says that the page is to forget what it has.
	Whole   bool            `json:"whole,omitempty"`
	Head    json.RawMessage `json:"head,omitempty"`
	Volumes difference      `json:"volumes"`
	Pods    difference      `json:"pods"`
	// Replicas are shown with the volumes of their claims.
	Replicas difference `json:"replicas"`
}

// difference is what to set and what to remove, by key.
type difference struct {
	Set  map[string]json.RawMessage `json:"set,omitempty"`
	Gone []string                   `json:"gone,omitempty"`
}

// since returns what a page that has the old edition, or none, must get; false if nothing.
func (e *edition) since(old *edition) (update, bool) {
	u := update{}
	if old == nil {
		u.Whole, old = true, &edition{}
	}
	if e.head != old.head {
		u.Head = json.RawMessage(e.head)
	}
	u.Volumes, u.Pods, u.Replicas = differ(old.volumes, e.volumes), differ(old.pods, e.pods), differ(old.replicas, e.replicas)
	return u, u.Whole || u.Head != nil || !u.Volumes.empty() || !u.Pods.empty() || !u.Replicas.empty()
}

func (d difference) empty() bool { return len(d.Set) == 0 && len(d.Gone) == 0 }

func differ(old, now map[string]string) difference {
	d := difference{Set: map[string]json.RawMessage{}}
	for key, value := range now {
		if had, ok := old[key]; !ok || had != value {
			d.Set[key] = json.RawMessage(value)
		}
	}
	for key := range old {
		if _, ok := now[key]; !ok {
			d.Gone = append(d.Gone, key)
		}
	}
	return d
}
