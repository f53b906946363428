package harness

import "os"

// Address is where the receiver waits.
func (m *Move) Address() string { return m.data }

// Control is where the sender waits for the controller.
func (m *Move) Control() string { return m.control }

// Processes are the identifiers of the sender's and the receiver's processes.
func (m *Move) Processes() (sender, receiver int) {
	return m.sender.Process.Pid, m.receiver.Process.Pid
}

// Scratch is where the mover of a verb, send or receive, keeps manifests.
func (m *Move) Scratch(verb string) string { return m.path("scratch", verb) }

// Log is what both movers have logged.
func (m *Move) Log() string {
	var text string
	for _, verb := range []string{"send", "receive"} {
		content, _ := os.ReadFile(m.path(verb + ".log"))
		text += "--- " + verb + "\n" + string(content)
	}
	return text
}
