package node

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// patience is how many probes in a row must fail before a remote cluster counts
// as silent: one missed answer is not an outage.
const patience = 3

// deaf is how many heartbeats the agent may overlook.
const deaf = 6

// Health is what is known of a remote cluster from probing it.
type Health struct {
	// Answered: a probe succeeded since the start.
	Answered bool
	// Failures is how many probes failed since the last that succeeded, Problem
	// the sentence of the last of them and Reason its word.
	Failures        int
	Reason, Problem string
	// Missing is a sentence if there is no HomeCluster object of ours.
	Missing string
	// Unwanted is a sentence if the cluster must not be used: it is the home
	// cluster, or another RemoteCluster stands for it. UnwantedReason is its word.
	Unwanted, UnwantedReason string
	// Home is that object as last seen.
	Home *remotev1alpha1.HomeCluster
	// Beats is how often home renewed its heartbeat since the start.
	Beats int
}

// Silent reports whether the remote cluster counts as silent.
func (h Health) Silent() bool { return h.Failures >= patience }

// Alive reports whether the remote cluster answers, as far as is known.
func (h Health) Alive() bool { return h.Answered && !h.Silent() }

// State returns the state that a health means, and false as long as it is not
// known: what was last shown stays until then.
func (h Health) State(cluster string) (State, bool) {
	switch {
	case h.Silent():
		return State{Reason: h.Reason, Message: h.Problem}, true
	case !h.Answered:
		return State{}, false
	case h.Unwanted != "":
		return State{Reason: h.UnwantedReason, Message: h.Unwanted}, true
	case h.Missing != "":
		return State{Reason: "NoHomeCluster", Message: h.Missing}, true
	case h.Home == nil:
		return State{}, false
	case h.Home.DeletionTimestamp != nil:
		return State{Reason: "Leaving", Message: fmt.Sprintf("the owner of cluster %s has withdrawn its HomeCluster %s: pods there are being ended", cluster, h.Home.Name)}, true
	}
	ready := meta.FindStatusCondition(h.Home.Status.Conditions, remotev1alpha1.Ready)
	switch {
	case ready == nil:
		return State{Reason: "AgentSilent", Message: fmt.Sprintf("the remote agent of cluster %s has not answered yet: check that it runs (deploy/remote)", cluster)}, true
	case ready.Status != metav1.ConditionTrue:
		return State{Reason: "HomeClusterNotReady", Message: clip(ready.Message)}, true
	case h.unheard():
		return State{Reason: "AgentSilent", Message: fmt.Sprintf("the remote agent of cluster %s does not see this cluster's heartbeat: check that it runs (deploy/remote)", cluster)}, true
	}
	return State{Ready: true, Reason: "RemoteReady", Message: fmt.Sprintf("pods can run in cluster %s", cluster)}, true
}

// unheard reports whether home renews its heartbeat and the agent does not see it.
func (h Health) unheard() bool {
	return h.Beats >= deaf && meta.IsStatusConditionFalse(h.Home.Status.Conditions, remotev1alpha1.Connected)
}

// failure sorts the error of a probe into a word and a sentence.
func failure(cluster string, err error) (reason, sentence string) {
	if apierrors.IsUnauthorized(err) {
		return "NotAuthorized", fmt.Sprintf("cluster %s does not accept the credentials of the kubeconfig: renew them in the Secret", cluster)
	}
	return "RemoteSilent", fmt.Sprintf("cluster %s does not answer: %v", cluster, cause(err))
}

// missing returns the sentence of a HomeCluster object that cannot be read, empty
// if the error says something else.
func missing(cluster, homeID string, err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("cluster %s has no HomeCluster %s: its owner makes it (kubectl lodestone peer), or set spec.virtualNode of the RemoteCluster to Disabled", cluster, homeID)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the kubeconfig may not read HomeCluster %s of cluster %s: its owner lets it (kubectl lodestone peer), or set spec.virtualNode of the RemoteCluster to Disabled", homeID, cluster)
	}
	return ""
}
