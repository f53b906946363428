package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Workload has the facts about what makes pods, such as a Deployment.
type Workload struct {
	// Kind is as users write it: deployment.
	Kind, Name, Namespace string
	// Wanted is how many pods there are to be; less than 0 if that is not known.
	Wanted int
	// Deleted says that it is being deleted, Paused that its rollout was stopped.
	Deleted, Paused bool
	// Owner is the workload that it belongs to, such as deployment/web; empty for none.
	Owner string
	// Done, Failed and Suspended are of a Job: that it has done its work, why it has failed, and that it is not to make pods now.
	Done, Suspended bool
	Failed          string
	// Problems are what its conditions say of pods that cannot be made.
	Problems []string
	// Events are those on it and on what it makes pods by.
	Events []corev1.Event
	// Has is how many pods it has. Pods are those that were looked at, which may be fewer: first those that may wait.
	Has  int
	Pods []Pod
}

// unmade are the reasons of events that say why no pod is made.
var unmade = sets.New("FailedCreate")

// Of returns why pods of a workload wait, or that none does.
func (w Workload) Of(s Setting) Answer {
	what := fmt.Sprintf("%s %q", w.Kind, w.Name)
	problem := ""
	if event := latest(w.Events, unmade); event != nil && s.Now.Sub(when(*event)) < memory {
		problem = event.Message
	}
	problem = cmp.Or(append(slices.Clone(w.Problems), problem)...)
	var waiting []Answer
	var names, facts []string
	for _, pod := range w.Pods {
		answer := pod.Of(s)
		facts = append(facts, fmt.Sprintf("pod %s: %s", pod.Pod.Name, answer.Sentence))
		if answer.Waiting {
			waiting, names = append(waiting, answer), append(names, pod.Pod.Name)
		}
	}
	has := max(w.Has, len(w.Pods))
	answer := fine("all of the %d pods of %s run", has, what)
	switch {
	case w.Deleted && len(w.Pods) == 0:
		answer = waits("%s is being deleted", what)
	case w.Failed != "" && len(waiting) > 0:
		answer = waits("%s has failed: %s; %s", what, w.Failed, waiting[0].Sentence)
	case w.Failed != "":
		answer = waits("%s has failed: %s", what, w.Failed)
	case w.Done:
		answer = fine("%s has done its work", what)
	case w.Suspended && len(w.Pods) == 0:
		answer = waits("%s is suspended, so it makes no pods: kubectl patch job %s -n %s -p '{\"spec\":{\"suspend\":false}}' has it go on", what,
			w.Name, w.Namespace)
	case len(w.Pods) == 0 && w.Wanted == 0:
		answer = fine("%s is to have no pods: %s", what, w.howMany())
	case len(w.Pods) == 0 && problem != "":
		answer = waits("%s has no pods, because they cannot be made: %s", what, problem)
	case len(w.Pods) == 0:
		answer = waits("%s has no pods yet: if that lasts, kubectl describe %s %s -n %s says more", what, w.Kind, w.Name, w.Namespace)
	case len(waiting) == 1 && len(w.Pods) == 1:
		answer = waits("%s", waiting[0].Sentence)
	case len(waiting) > 0:
		least := ""
		if has > len(w.Pods) && len(waiting) == len(w.Pods) {
			least = "at least "
		}
		answer = waits("%s%d of the %d pods of %s wait: %s", least, len(waiting), has, what, waiting[0].Sentence)
		if others := different(waiting, names); others != "" {
			answer.Sentence += "; for other reasons: " + others
		}
	case problem != "":
		answer = waits("%s has %d of %d pods, and no more can be made: %s", what, has, w.Wanted, problem)
	case w.Wanted > has:
		answer = waits("%s has %d of %d pods: the others are made one after another, as those before them run", what, has, w.Wanted)
	case has == 1 && len(w.Pods) == 1:
		answer = fine("the pod of %s runs: %s", what, strings.TrimPrefix(facts[0], "pod "+w.Pods[0].Pod.Name+": "))
	}
	if w.Paused && len(waiting) > 0 {
		answer.Sentence += fmt.Sprintf("; its rollout is paused (kubectl rollout resume %s %s -n %s)", w.Kind, w.Name, w.Namespace)
	}
	if answer.Facts = facts; len(waiting) > 0 && len(w.Pods) == 1 {
		answer.Facts = waiting[0].Facts
	}
	return s.withNamespace(answer, what, w.Deleted).plain()
}

// howMany says who decides how many pods there are.
func (w Workload) howMany() string {
	switch {
	case w.Owner != "":
		return fmt.Sprintf("%s decides that", w.Owner)
	case w.Kind == "daemonset":
		return "no node is one that its node selector and affinity ask for, and whose taints it tolerates"
	}
	return fmt.Sprintf("kubectl scale %s %s -n %s --replicas=1 gives it one", w.Kind, w.Name, w.Namespace)
}

// different names the pods that wait for something else than the first one; the same thing is told of pods with other names, and of
// their claims, which are named after them.
func different(waiting []Answer, names []string) string {
	general := func(i int) string { return strings.ReplaceAll(waiting[i].Sentence, names[i], "*") }
	var others []string
	for i := range waiting {
		if general(i) != general(0) {
			others = append(others, names[i])
		}
	}
	return strings.Join(others, ", ")
}
