package decide

import "fmt"

// OfJob says why a pod of a Job is not stopped, and what to do.
func OfJob(namespace, pod, job string) string {
	return fmt.Sprintf("pod %[2]s of Job %[3]s uses the volume, and a Job counts each pod that is stopped as one that failed: wait until it has ended, or suspend the Job "+
		"(kubectl patch job %[3]s -n %[1]s -p '{\"spec\":{\"suspend\":true}}'), move, and resume it", namespace, pod, job)
}

// working waits for pods of Jobs that began after the move did, before any pod is stopped;
// false where there are none. They are not stopped for a move.
func working(o Observation) (Step, bool) {
	for _, pod := range o.Pods {
		if pod.Job != "" && pod.Bound && !pod.Finished {
			return wait(soon, "all is copied but the last changes; before pods are stopped this is waited for: "+OfJob(o.Record.Namespace, pod.Name, pod.Job)), true
		}
	}
	return Step{}, false
}
