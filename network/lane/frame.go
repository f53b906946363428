package lane

// Lanes carry IPv4 and nothing else: routes, translations and packet filters are of IPv4. The kernel makes other packets for each link, and
// a gateway of another cluster may send what it likes.

// isIPv4 says that a packet behind its vnetHeader is one of IPv4.
func isIPv4(packet []byte) bool { return len(packet) > vnetHeader && packet[vnetHeader]>>4 == 4 }
