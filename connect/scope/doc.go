// Package scope defines the OAuth scopes (RFC 6749, section 3.3) of connections.
//
// Three scopes are published in metadata: mcp:read, mcp:write (which includes read) and mcp:use (everything). Each area of a
// business's account also has its own scopes, such as contacts:read or automations:run, so that a user can restrict a connection
// by area. A scope stands for a set of rights, each for one area and verb. A [Set] allows a scope if it has all of that scope's
// rights:
//
//	mcp:use     every right
//	mcp:write   read and write of every area, run of none
//	mcp:read    read of every area
//	X:write     read and write of the area X
//	X:run       read and run of the area X
//	X:read      read of the area X
package scope
