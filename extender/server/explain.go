package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/klog/v2"
)

// explain answers with what was decided on a pod lately, and why.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.FormValue("namespace"), r.FormValue("pod")
	if namespace == "" || name == "" {
		writeLine(w, http.StatusBadRequest, "name the pod: /explain?namespace=<namespace>&pod=<name>")
		return
	}
	pod, ok := s.Journal.Get(namespace, name)
	if !ok {
		writeLine(w, http.StatusNotFound, fmt.Sprintf("nothing is known of pod %q: either none of its claims matters here, or this replica was not asked about it lately; ask the other replicas, and see kubectl describe pod", namespace+"/"+name))
		return
	}
	body, err := json.MarshalIndent(pod, "", "  ")
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Failed to explain", "pod", klog.KRef(namespace, name))
		writeLine(w, http.StatusInternalServerError, "the explanation cannot be written: the extender's log says why")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// Whoever hung up needs no answer.
	_, _ = w.Write(append(body, '\n'))
}
